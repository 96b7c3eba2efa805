// Package deploy tests the deployment files beside it: the flags that they pass exist, and the
// addresses that they connect to are served.
package deploy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
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

// ports are the ports of the services, by name; metrics ports are higher by 1000.
var ports = map[string]string{"api-service": "8080", "chat-service": "8081", "llm-worker": "8082"}

var inHelp = regexp.MustCompile(`(?m)^  --(\S+)`)

// helps runs each service, the gateway and the whole path with --help and returns its flags.
var helps = sync.OnceValues(func() (map[string][]string, error) {
	dir, err := os.MkdirTemp("", "whence-deploy-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	build := exec.Command("go", "build", "-o", dir, ".", "./api-service", "./chat-service", "./llm-worker")
	build.Dir = ".."
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, out)
	}
	flags := map[string][]string{}
	commands := map[string][]string{"gateway": {"whence", "gateway"}, "serve": {"whence", "serve"}}
	for service := range ports {
		commands[service] = []string{service}
	}
	for service, command := range commands {
		out, err := exec.Command(filepath.Join(dir, command[0]), append(command[1:], "--help")...).Output()
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

// parse parses arguments: --flag=value, --flag value and --flag.
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

// check tests that a service's arguments are its flags, and that every connected address is served.
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
			t.Errorf("%s: --%s is %s, but no service listens there", where, flag, address)
		}
	}
	if (values["chat"] == "") == (service == "api-service") || (values["worker"] == "") == (service == "chat-service") {
		t.Errorf("%s: %s has no address of the next service: %v", where, service, args)
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
		b, err := json.Marshal(read) // through JSON, which matches the names of fields without tags
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

func TestComposeFilesStartExistingServices(t *testing.T) {
	flags := flagsOf(t)
	files, err := filepath.Glob("compose/*.yml")
	if err != nil || len(files) < 2 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		if file == observability { // adds to another file
			continue
		}
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
			t.Errorf("%s: the worker calls %v, but the engine is %v", file, c.Services["llm-worker"].Command, c.Services["engine"].Command)
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

func TestDockerfileBuildsEachService(t *testing.T) {
	b, err := os.ReadFile("docker/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	wants := maps.Clone(ports)
	wants["whence"] = "8080" // everything in one process
	made := inDockerfile.FindAllStringSubmatch(string(b), -1)
	if len(made) != len(wants) {
		t.Errorf("the Dockerfile has %d images", len(made))
	}
	for _, m := range made {
		if name := m[1]; m[2] != name || m[3] != name || m[5] != name || m[4] != wants[name] || m[6] != wants[name] {
			t.Errorf("%q", m)
		}
	}
	if !strings.Contains(string(b), " AS gateway\nCOPY --from=build /out/whence /whence\nEXPOSE 8080\nENTRYPOINT [\"/whence\", \"gateway\"]\nCMD [\"--listen\", \"0.0.0.0:8080\"]\n") {
		t.Error("the Dockerfile has no image of the gateway")
	}
	mod, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile(`(?m)^FROM golang:(\d+\.\d+) AS build$`).FindSubmatch(b)
	if version == nil || !bytes.Contains(mod, append([]byte("\ngo "), version[1]...)) {
		t.Errorf("the Dockerfile builds with %s, which is not the version of go.mod", version)
	}
}
