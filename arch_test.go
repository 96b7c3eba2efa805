package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/whence-dev/whence"

// A goPackage is one package in the output of `go list`.
type goPackage struct {
	ImportPath, Dir string
	GoFiles         []string
	IgnoredGoFiles  []string // for other systems; without tests
	TestGoFiles     []string
	Imports         []string
	TestImports     []string
	XTestImports    []string
}

func packages(t *testing.T) []goPackage {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Dir,GoFiles,IgnoredGoFiles,TestGoFiles,Imports,TestImports,XTestImports", "./...").Output()
	if err != nil {
		t.Fatal(err)
	}
	var all []goPackage
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		p.IgnoredGoFiles = slices.DeleteFunc(p.IgnoredGoFiles, func(file string) bool { return strings.HasSuffix(file, "_test.go") })
		all = append(all, p)
	}
}

// local returns an import path within the module, without the module; "" for others.
func local(path string) string {
	rest, ok := strings.CutPrefix(path, module+"/")
	if !ok {
		return ""
	}
	return rest
}

func top(path string) string {
	first, _, _ := strings.Cut(path, "/")
	return first
}

var services = []string{"api-service", "chat-service", "llm-worker"}

// TestProtosPointDownwards: the library's messages do not depend on language models, and
// chat-service's not on workers.
func TestProtosPointDownwards(t *testing.T) {
	may := map[string][]string{
		"stream":  nil,
		"llm":     {"stream"},
		"worker":  {"stream", "llm"},
		"chat":    {"stream", "llm"},
		"example": {"stream"},
	}
	const prefix = "idl/gen/whence/"
	for _, p := range packages(t) {
		from, ours := strings.CutPrefix(local(p.ImportPath), prefix)
		if !ours {
			continue
		}
		allowed, known := may[strings.TrimSuffix(from, "/v1")]
		if !known {
			t.Errorf("idl/whence/%s: say here what it may import", from)
		}
		for _, imp := range p.Imports {
			to, ours := strings.CutPrefix(local(imp), prefix)
			if ours && !slices.Contains(allowed, strings.TrimSuffix(to, "/v1")) {
				t.Errorf("idl/whence/%s imports idl/whence/%s: see docs/adr/0033-protos-of-the-library-and-of-language-models.md", from, to)
			}
		}
	}
}

// TestArrowsPointDownwards: main -> gateway -> service -> pkg -> idl/gen, and services never import
// each other.
func TestArrowsPointDownwards(t *testing.T) {
	allowed := map[string][]string{
		"api-service":  {"api-service", "internal", "pkg", "idl"},
		"chat-service": {"chat-service", "internal", "pkg", "idl"},
		"llm-worker":   {"llm-worker", "internal", "pkg", "idl"},
		"gateway":      {"gateway", "api-service", "chat-service", "llm-worker", "internal", "pkg"}, // the services in one process
		"command":      {"command", "api-service", "internal", "pkg"},                               // what operators call
		"lab":          {"lab", "internal", "pkg", "idl"},                                           // for tests and measurements
		"internal":     {"internal", "pkg", "idl"},
		"pkg":          {"internal", "pkg", "idl"},
		"idl":          {"idl"},
	}
	for _, p := range packages(t) {
		from := local(p.ImportPath)
		to, bound := allowed[top(from)]
		if !bound {
			continue // main, bench and e2e may import everything
		}
		for _, imp := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
			if path := local(imp); path != "" && !slices.Contains(to, top(path)) {
				t.Errorf("%s imports %s; %s may only import %v: move what it needs down, have it passed in, or, if it is a test of several services, to e2e",
					from, path, top(from), to)
			}
		}
	}
}

// TestTransportsStayWhereTheyBelong keeps stages free of gRPC, Kitex and Hertz.
func TestTransportsStayWhereTheyBelong(t *testing.T) {
	for library, homes := range map[string][]string{
		"github.com/cloudwego/kitex": {
			"pkg/rpc/kitexrpc", "pkg/rpc/ttrpc", "idl/gen/thrift", "examples/mock",
		},
		"github.com/cloudwego/hertz": {
			"api-service/connection", "api-service/edge", "examples/chat",
		},
		"google.golang.org/grpc": {
			"idl/gen", "pkg/streamerr", "pkg/rpc", // its types
			"api-service/edge", "chat-service/server", "chat-service/fleet", "llm-worker/worker", "llm-worker/engine", "examples", "e2e/simulation", // where servers and clients are made
			"bench/relay", // is compared with ours
		},
	} {
		for _, p := range packages(t) {
			from := local(p.ImportPath)
			if slices.ContainsFunc(homes, func(home string) bool { return from == home || strings.HasPrefix(from, home+"/") }) {
				continue
			}
			for _, imp := range p.Imports {
				if imp == library || strings.HasPrefix(imp, library+"/") {
					t.Errorf("%s imports %s; only %v may: write against stream.Sequence, and have the transport handed in", from, imp, homes)
				}
			}
		}
	}
}

func TestStreamImportsNoLibrary(t *testing.T) {
	for _, p := range packages(t) {
		if local(p.ImportPath) != "pkg/stream" {
			continue
		}
		for _, imp := range p.Imports {
			if strings.Contains(top(imp), ".") {
				t.Errorf("pkg/stream imports %s: it is what everything else is built on; put what needs a library into a package above it", imp)
			}
		}
		return
	}
	t.Error("there is no pkg/stream")
}

// openAIJSON matches code that reads or writes the OpenAI API.
var openAIJSON = regexp.MustCompile(`chat\.completion|finish_reason|tool_calls`)

// TestOpenAIJSONStaysInOnePackage: services exchange protobuf messages only.
func TestOpenAIJSONStaysInOnePackage(t *testing.T) {
	homes := []string{
		"api-service/openai", "api-service/openai/conversation",
		"api-service/sglang",                                          // its own API has some of the names
		"api-service/ollama",                                          // its own API has some of the names
		"api-service/anthropic",                                       // the IDL has some of the names
		"api-service/responses", "api-service/responses/conversation", // the IDL has some of the names
		"llm-worker/engine/openai", "llm-worker/engine/beside/besidetest", // calls servers with this API, and is one
		"llm-worker/engine/sglang", "llm-worker/engine/sglang/sglangtest", // its own API has some of the names
		"internal/client",             // its requests are chat completions
		"chat-service/prompt",         // chat templates read messages under these names
		"chat-service/toolcall",       // some models have such words in their tags
		"pkg/streamtrace",             // OpenTelemetry's conventions have some of the names
		"e2e/fidelity",                // its golden data contains such messages
		"e2e/fidelity/streams",        // a client
		"e2e/simulation/client",       // a client
		"command",                     // measures any server of OpenAI's API
		"bench/gpu", "bench/gpu/fake", // clients of servers, and a fake of them
		"bench/trust/reader",         // a client that checks the order of events
		"bench/trust/server",         // a provider that refuses requests
		"bench/paced", "bench/relay", // servers that Whence is compared with
	}
	for _, p := range packages(t) {
		name := local(p.ImportPath)
		if slices.Contains(homes, name) || top(name) == "idl" {
			continue
		}
		if name == "api-service/edge" && slices.Contains(p.Imports, "encoding/json") {
			t.Errorf("%s imports encoding/json: it works on messages, and the packages beside it read and write JSON", name)
		}
		for _, file := range p.GoFiles {
			fset := token.NewFileSet()
			f, err := parser.ParseFile(fset, filepath.Join(p.Dir, file), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(f, func(n ast.Node) bool {
				if s, ok := n.(*ast.BasicLit); ok && s.Kind == token.STRING && openAIJSON.MatchString(s.Value) {
					t.Errorf("%s/%s:%d: %s is OpenAI JSON, which only %v know", name, file, fset.Position(s.Pos()).Line, s.Value, homes)
				}
				return true
			})
		}
	}
}

const maxFileLines = 500

func TestFilesStaySmall(t *testing.T) {
	for _, p := range packages(t) {
		name := local(p.ImportPath)
		if strings.HasPrefix(name, "idl/gen") {
			continue
		}
		for _, file := range slices.Concat(p.GoFiles, p.IgnoredGoFiles) {
			if n := countLines(t, filepath.Join(p.Dir, file)); n > maxFileLines {
				t.Errorf("%s/%s has %d lines; split it by noun, at most %d", name, file, n, maxFileLines)
			}
		}
	}
}

func countLines(t *testing.T, file string) int {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Count(b, []byte("\n"))
}

func TestEveryPackageSaysWhatItPromises(t *testing.T) {
	for _, p := range packages(t) {
		name := local(p.ImportPath)
		if strings.HasPrefix(name, "idl/gen") {
			continue
		}
		files := slices.Concat(p.GoFiles, p.IgnoredGoFiles)
		if len(files) == 0 {
			files = p.TestGoFiles // nothing but tests, which also have a contract
		}
		var docs []string
		for _, file := range files {
			f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, file), nil, parser.PackageClauseOnly|parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			if f.Doc != nil {
				docs = append(docs, file)
			}
			want := "Package " + f.Name.Name + " "
			if f.Name.Name == "main" {
				want = "Command "
			}
			if f.Doc != nil && !strings.HasPrefix(f.Doc.Text(), want) {
				t.Errorf("%s/%s: the package comment must begin with %q", name, file, want)
			}
		}
		if len(docs) != 1 {
			t.Errorf("%s has package comments in %v; it needs one, whose first sentence is what the package promises", name, docs)
		}
	}
}

// TestIntervalsIgnoreTheMachinesClock: intervals within a process are measured with process.Uptime.
// Differences of Unix times jump when the machine's clock is set.
func TestIntervalsIgnoreTheMachinesClock(t *testing.T) {
	wall := regexp.MustCompile(`time\.Now\(\).*\.UnixNano\(\)`)
	for _, p := range packages(t) {
		name := local(p.ImportPath)
		if strings.HasPrefix(name, "bench") || strings.HasPrefix(name, "e2e") {
			continue
		}
		for _, file := range p.GoFiles {
			text, err := os.ReadFile(filepath.Join(p.Dir, file))
			if err != nil {
				t.Fatal(err)
			}
			if found := wall.Find(text); found != nil {
				t.Errorf("%s/%s: %s: use process.Uptime", name, file, found)
			}
		}
	}
}

func TestNamesSayWhatAPackageIsFor(t *testing.T) {
	for _, p := range packages(t) {
		switch last := filepath.Base(p.Dir); last {
		case "util", "utils", "common", "types", "helpers", "misc":
			t.Errorf("%s: the name is too general; name the package after the noun that it gives to its users", local(p.ImportPath))
		}
	}
}

// participles are irregular past participles. Regular ones end in "ed", as do the words of edNouns.
var (
	participles = strings.Fields("begun broken brought built chosen done drawn found frozen given gone heard held hidden kept known left lost made read seen sent shown taken thrown told torn written")
	edNouns     = strings.Fields("bed deed embed feed misdeed need seed speed thread")
	lastWord    = regexp.MustCompile(`([A-Z]?[a-z]+|[A-Z]+)[0-9]*$`)
)

// TestTypesAreNouns: the name of a type says what a value is. A participle, such as kept or Upgraded, leaves that to the reader.
func TestTypesAreNouns(t *testing.T) {
	for _, p := range packages(t) {
		name := local(p.ImportPath)
		if strings.HasPrefix(name, "idl/gen") {
			continue
		}
		files, err := filepath.Glob(filepath.Join(p.Dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			fset := token.NewFileSet()
			f, err := parser.ParseFile(fset, file, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(f, func(n ast.Node) bool {
				if spec, ok := n.(*ast.TypeSpec); ok && isParticiple(spec.Name.Name) {
					t.Errorf("%s/%s:%d: the type %s is named by a participle: name it by a noun", name, filepath.Base(file), fset.Position(spec.Pos()).Line, spec.Name.Name)
				}
				return true
			})
		}
	}
}

// isParticiple reports whether the last word of an identifier is a past participle.
func isParticiple(name string) bool {
	last := strings.ToLower(lastWord.FindString(name))
	if slices.Contains(edNouns, last) {
		return false
	}
	return strings.HasSuffix(last, "ed") || slices.Contains(participles, last)
}

// TestFilesSpeakOfTheProjectAlone looks for addresses of private registries and for local paths.
func TestFilesSpeakOfTheProjectAlone(t *testing.T) {
	out, err := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip("not a git checkout")
	}
	words := []string{"registry." + "npmjs", "proxy." + "golang.org", "deb." + "debian.org", "/ro" + "ot/", "/ho" + "me/", "/wo" + "rk/"}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		b, err := os.ReadFile(lines.Text())
		if err != nil || bytes.IndexByte(b[:min(len(b), 8000)], 0) >= 0 {
			continue // deleted, or binary
		}
		for _, word := range words {
			if at := bytes.Index(b, []byte(word)); at >= 0 {
				t.Errorf("%s:%d has %q: leave hosts to the configuration of go and npm, and make paths relative", lines.Text(), 1+bytes.Count(b[:at], []byte("\n")), word)
			}
		}
	}
}

func TestEveryServiceRunsByItself(t *testing.T) {
	for _, service := range services {
		if _, err := os.Stat(filepath.Join(service, "main.go")); err != nil {
			t.Errorf("go run ./%s does not work: %v", service, err)
		}
	}
}
