// Package deploy keeps the files beside it: what they start has the flags that they give, and what they connect is there.
package deploy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gopkg.in/yaml.v3"
)

// ports are those that the services listen on, by name; metrics are a thousand above.
var ports = map[string]string{"api-service": "8080", "chat-service": "8081", "llm-worker": "8082"}

var inHelp = regexp.MustCompile(`(?m)^  --(\S+)`)

// helps runs each service with --help, and returns the flags that it has.
var helps = sync.OnceValues(func() (map[string][]string, error) {
	dir, err := os.MkdirTemp("", "whence-deploy-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	build := exec.Command("go", "build", "-o", dir, "./api-service", "./chat-service", "./llm-worker")
	build.Dir = ".."
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, out)
	}
	flags := map[string][]string{}
	for service := range ports {
		out, err := exec.Command(filepath.Join(dir, service), "--help").Output()
		if err != nil {
			return nil, err
		}
		for _, m := range inHelp.FindAllStringSubmatch(string(out), -1) {
			flags[service] = append(flags[service], m[1])
		}
	}
	return flags, nil
})

func flagsOf(t *testing.T) map[string][]string {
	t.Helper()
	flags, err := helps()
	if err != nil {
		t.Fatal(err)
	}
	return flags
}

// parse reads arguments: --flag=value, --flag value and --flag.
func parse(args []string) map[string]string {
	values := map[string]string{}
	for i := 0; i < len(args); i++ {
		name, value, ok := strings.Cut(strings.TrimPrefix(args[i], "--"), "=")
		if !ok && i+1 < len(args) && !strings.HasPrefix(args[i+1], "--") {
			i++
			value = args[i]
		}
		values[name] = value
	}
	return values
}

// check tests that a service's arguments are flags of the service, and that services listen on all addresses.
func check(t *testing.T, where, service string, args, known []string, there map[string]bool) {
	t.Helper()
	values := parse(args)
	for name := range values {
		if !slices.Contains(known, name) {
			t.Errorf("%s: %s has no flag --%s", where, service, name)
		}
	}
	if got := values["listen"]; got != "0.0.0.0:"+ports[service] {
		t.Errorf("%s: %s listens on %q", where, service, got)
	}
	for flag, target := range map[string]string{"chat": "chat-service", "worker": "llm-worker"} {
		address, ok := values[flag]
		if ok && (strings.TrimPrefix(address, "dns:///") != target+":"+ports[target] || !there[target]) {
			t.Errorf("%s: --%s is %s, where nobody listens", where, flag, address)
		}
	}
	if (values["chat"] == "") == (service == "api-service") || (values["worker"] == "") == (service == "chat-service") {
		t.Errorf("%s: %s does not know whom to ask: %v", where, service, args)
	}
}

// decode reads all documents of a file, or fails.
func decode[T any](t *testing.T, file string) (all []T) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for d := yaml.NewDecoder(bytes.NewReader(b)); ; {
		var read any
		if err := d.Decode(&read); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		var one T
		b, err := json.Marshal(read) // whose names need not be spelled out once more
		if err == nil {
			err = json.Unmarshal(b, &one)
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all = append(all, one)
	}
}

// A composeFile is a file of Docker Compose.
type composeFile struct {
	Services map[string]struct {
		Image   string
		Build   struct{ Target, Dockerfile, Context string }
		Command []string
		Volumes []string
		Stop    string `json:"stop_grace_period"`
	}
}

func TestComposeFilesStartWhatIsThere(t *testing.T) {
	flags := flagsOf(t)
	files, err := filepath.Glob("compose/*.yml")
	if err != nil || len(files) < 2 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		c := decode[composeFile](t, file)[0]
		there := map[string]bool{}
		for name := range c.Services {
			there[name] = true
		}
		for service := range ports {
			s, ok := c.Services[service]
			if !ok {
				t.Errorf("%s has no %s", file, service)
				continue
			}
			check(t, file, service, s.Command, flags[service], there)
			if _, err := os.Stat(filepath.Join(filepath.Dir(file), s.Build.Context, s.Build.Dockerfile)); err != nil || s.Build.Target != service {
				t.Errorf("%s builds %s as %+v: %v", file, service, s.Build, err)
			}
			if grace, err := time.ParseDuration(s.Stop); err != nil || grace < 35*time.Second { // --drain's default is 30 s
				t.Errorf("%s: %s may take %s to stop", file, service, s.Stop)
			}
		}
		// The worker's upstream is the engine, on the engine's port.
		_, port, ok := strings.Cut(strings.TrimPrefix(parse(c.Services["llm-worker"].Command)["upstream"], "http://"), "engine:")
		if !ok || parse(c.Services["engine"].Command)["port"] != port || port == "" {
			t.Errorf("%s: the worker asks %v, and the engine is %v", file, c.Services["llm-worker"].Command, c.Services["engine"].Command)
		}
		for _, volume := range c.Services["engine"].Volumes {
			if local, _, _ := strings.Cut(volume, ":"); strings.HasPrefix(local, ".") {
				if _, err := os.Stat(filepath.Join(filepath.Dir(file), local)); err != nil {
					t.Errorf("%s: %v", file, err)
				}
			}
		}
	}
}

var inDockerfile = regexp.MustCompile(`(?m)^FROM \S+ AS (\S+)\nCOPY --from=build /out/(\S+) /(\S+)\nEXPOSE (\d+)\nENTRYPOINT \["/(\S+)"\]\nCMD \["--listen", "0\.0\.0\.0:(\d+)"\]`)

func TestDockerfileMakesEachService(t *testing.T) {
	b, err := os.ReadFile("docker/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	made := inDockerfile.FindAllStringSubmatch(string(b), -1)
	if len(made) != len(ports) {
		t.Errorf("it makes %d images", len(made))
	}
	for _, m := range made {
		if service := m[1]; m[2] != service || m[3] != service || m[5] != service || m[4] != ports[service] || m[6] != ports[service] {
			t.Errorf("%q", m)
		}
	}
	if !strings.Contains(string(b), " AS gateway\nCOPY --from=build /out/whence /whence\nEXPOSE 8080\nENTRYPOINT [\"/whence\", \"gateway\"]\nCMD [\"--listen\", \"0.0.0.0:8080\"]\n") {
		t.Error("it makes no gateway")
	}
	mod, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile(`(?m)^FROM golang:(\d+\.\d+) AS build$`).FindSubmatch(b)
	if version == nil || !bytes.Contains(mod, append([]byte("\ngo "), version[1]...)) {
		t.Errorf("it builds with %s, and go.mod says otherwise", version)
	}
}
