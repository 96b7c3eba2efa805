package main

import (
	"encoding/base64"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/pkg/rpc/ttrpc"
	"github.com/whence-dev/whence/pkg/streamerr"
	"github.com/whence-dev/whence/pkg/streamtrace"
)

// See docs/adr/0088-a-module-for-kitexstream.md.
const kitexstream = "contrib/kitexstream"

// newestKitex are the flags for go commands in kitexstream: its own go.mod requires the oldest Kitex, which does not
// build with this Go.
var newestKitex = []string{"-modfile=kitex/0.16.mod", "-tags=kitex016"}

// inModule runs go in a directory that has a module of its own.
func inModule(t *testing.T, dir, stdin string, args ...string) string {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(stdin)
	cmd.Env = append(os.Environ(), "GOWORK=off")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("go %s in %s: %v\n%s", strings.Join(args, " "), dir, err, out)
	}
	return string(out)
}

// TestModulesOfKitexstream runs the tests of contrib/kitexstream and of the modules in it.
func TestModulesOfKitexstream(t *testing.T) {
	args := []string{"test"}
	if os.Getenv("CI") == "true" {
		args = append(args, "-race")
	}
	modules, err := filepath.Glob(kitexstream + "/*/go.mod")
	if err != nil || len(modules) == 0 {
		t.Fatalf("there are no modules in %s: %v", kitexstream, err)
	}
	for _, file := range modules {
		t.Run(filepath.Base(filepath.Dir(file)), func(t *testing.T) { inModule(t, filepath.Dir(file), "", append(args, "./...")...) })
	}
	t.Run("kitexstream", func(t *testing.T) {
		inModule(t, kitexstream, "", slices.Concat(args, newestKitex, []string{"./..."})...)
	})
}

// TestKitexstreamAddsNoModuleToKitex: a module counts as added if it is in the build list of contrib/kitexstream, and
// cannot be reached from Kitex in the graph of its modules.
func TestKitexstreamAddsNoModuleToKitex(t *testing.T) {
	const kitex = "github.com/cloudwego/kitex"
	requires := map[string][]string{}
	for line := range strings.Lines(inModule(t, kitexstream, "", "mod", "graph")) {
		from, to, _ := strings.Cut(strings.TrimSpace(line), " ")
		requires[from] = append(requires[from], to)
	}
	reached := map[string]bool{"go": true, "toolchain": true, module + "/" + kitexstream: true}
	var reach func(node string)
	reach = func(node string) {
		path, _, _ := strings.Cut(node, "@")
		reached[path] = true
		direct := requires[node]
		delete(requires, node) // reached once
		for _, next := range direct {
			reach(next)
		}
	}
	for _, node := range slices.Collect(maps.Keys(requires)) {
		if strings.HasPrefix(node, kitex+"@") {
			reach(node)
		}
	}
	if len(reached) < 20 {
		t.Fatalf("Kitex reaches only %d modules", len(reached))
	}
	for path := range strings.FieldsSeq(inModule(t, kitexstream, "", "list", "-m", "-f", "{{.Path}}", "all")) {
		if !reached[path] {
			t.Errorf("contrib/kitexstream adds the module %s to those of Kitex: a package that needs one belongs into a module of its own, as telemetry does", path)
		}
	}
}

// An exception is a cancel with a cause over TTHeader Streaming.
type exception string

func (e exception) Error() string { return string(e) }
func (exception) TypeId() int32   { return 12011 } //nolint:revive // Kitex's name

// TestKitexstreamAgreesWithWhence: contrib/kitexstream has its own copies of reasons, paths, headers and of the readers
// of errors, because a module for Go 1.21 cannot import this one.
func TestKitexstreamAgreesWithWhence(t *testing.T) {
	var questions, want []string
	ask := func(question, answer string) {
		questions, want = append(questions, question), append(want, answer)
	}
	kinds := []streamtrace.Kind{
		streamtrace.SendHeader, streamtrace.RecvHeader, streamtrace.SendRst, streamtrace.RecvRst,
		streamtrace.SendTrailer, streamtrace.RecvTrailer, streamtrace.Send, streamtrace.Recv,
	}
	names := []string{
		streamerr.ViaHeader, streamtrace.StreamPrefix + streamtrace.Traceparent, streamtrace.StreamPrefix + streamtrace.Tracestate,
		streamerr.ReasonTrailer, streamerr.PathTrailer, streamerr.Domain, "path",
	}
	for _, kind := range kinds {
		names = append(names, kind.String())
	}
	ask("names", strings.Join(append(names, streamtrace.CodeStop, streamtrace.CodeCancel, streamtrace.CodeLost), " "))

	path := streamerr.NewPath("leaf", "shop")
	for number := range int32(len(streamv1.Reason_name) + 2) { // also unknown ones
		reason := streamerr.Reason(number)
		for _, word := range []string{reason.String(), strings.ToUpper(reason.String())} {
			parsed := streamerr.ParseReason(word)
			ask("reason "+word, fmt.Sprintf("%d %s, %v", int32(parsed), parsed.String(), error(parsed)))
		}
		if reason == streamerr.Completed || reason == streamerr.Unspecified {
			continue
		}
		sent := &streamerr.Error{Reason: reason, Path: path, Message: "the feed [1] is full"}
		askStatus(t, ask, sent.GRPCStatus())
		askCause(ask, ttrpc.CauseError(sent, sent).Error())
	}
	for code := range codes.Code(17) {
		if code != codes.OK && code != codes.DeadlineExceeded { // this hop's own timer, unless it came in a trailer
			askStatus(t, ask, status.New(code, "plain"))
		}
	}
	askStatus(t, ask, status.New(codes.ResourceExhausted, "grpc: received message larger than max (9 vs. 4)"))
	for _, text := range []string{"a > b", " a>b > ", "ünï > \tx", strings.Repeat("h > ", 40) + "end", strings.Repeat("n", 300)} {
		ask("path "+text, streamerr.ParsePath(text).String())
	}

	answers := strings.Split(strings.TrimSuffix(
		inModule(t, kitexstream, strings.Join(questions, "\n")+"\n", slices.Concat([]string{"run"}, newestKitex, []string{"./internal/agree"})...), "\n"), "\n")
	if len(answers) != len(want) {
		t.Fatalf("%d questions have %d answers: %v", len(want), len(answers), answers)
	}
	for i, answer := range answers {
		if answer != want[i] {
			t.Errorf("%s:\ncontrib/kitexstream: %s\nWhence:              %s", questions[i], answer, want[i])
		}
	}
}

func askStatus(t *testing.T, ask func(question, answer string), st *status.Status) {
	t.Helper()
	b, err := proto.Marshal(st.Proto())
	if err != nil {
		t.Fatal(err)
	}
	ask("status "+base64.StdEncoding.EncodeToString(b), endingText(streamerr.FromGRPC("peer", st.Err()), st.Message()))
}

func askCause(ask func(question, answer string), cause string) {
	text := "[ttstream error, code=12011] [server-side stream] [canceled path: mid] " + cause
	e := ttrpc.Canceled(exception(text))
	ask("cause "+text, endingText(e, e.Text()))
}

func endingText(e *streamerr.Error, message string) string {
	return fmt.Sprintf("%d %s [%s]", int32(e.Reason), message, e.Path)
}
