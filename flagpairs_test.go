package main

import (
	"bytes"
	"flag"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	api "github.com/whence-dev/whence/api-service/command"
	"github.com/whence-dev/whence/api-service/edge"
	chat "github.com/whence-dev/whence/chat-service/command"
	"github.com/whence-dev/whence/chat-service/server"
	"github.com/whence-dev/whence/gateway"
	gatewaycommand "github.com/whence-dev/whence/gateway/command"
	"github.com/whence-dev/whence/internal/cli"
	"github.com/whence-dev/whence/internal/observe"
	llmcommand "github.com/whence-dev/whence/llm-worker/command"
	llm "github.com/whence-dev/whence/llm-worker/worker"
)

// served are the services, and command lines beside which each of their flags is set: none, and
// flags on whose values others depend.
var served = []struct {
	name   string
	create func() *cli.Service
	beside [][]string
}{
	{"serve", allInOne, [][]string{nil}},
	{"gateway", func() *cli.Service { return gatewaycommand.New(&gateway.Config{}) }, [][]string{nil, {"--worker", "127.0.0.1:1,127.0.0.1:2", "--chat-listen", "127.0.0.1:0"}}},
	{"api", func() *cli.Service { return api.New(&edge.Config{}) }, [][]string{
		nil, {"--chat", "127.0.0.1:1,127.0.0.1:2", "--admin-listen", "127.0.0.1:0", "--redis", "redis://127.0.0.1:1", "--token-key", "k"},
	}},
	{"chat", func() *cli.Service { return chat.New(&server.Config{}) }, [][]string{nil, {"--worker", "dns:///workers:8082", "--queue-streams", "10"}}},
	{"worker", func() *cli.Service { return llmcommand.New(&llm.Config{}) }, [][]string{
		nil, {"--engine", "sim"}, {"--engine", "vllm", "--upstream", "127.0.0.1:1"}, {"--engine", "openai", "--upstream", "http://127.0.0.1:1", "--model", tinyDirectory()},
	}},
}

// tinyDirectory returns the directory of whence-tiny.
func tinyDirectory() string {
	dir, err := filepath.Abs(filepath.Join("internal", "whencetiny", "model"))
	if err != nil {
		panic(err)
	}
	return dir
}

// words are values of flags that are not numbers, besides the defaults of the other flags.
var words = []string{"x", "127.0.0.1:0", "http://127.0.0.1:1", "tcp://127.0.0.1:1", "etcd://127.0.0.1:1/x", "off", "prefill", "linger:1s"}

// choices are flags whose values only an operator can choose, so that other flags need them.
var choices = map[string]bool{
	"engine": true, // some flags are of use only with some engines
}

// edges returns values of a flag at the edges of its type. words are values for flags that are no
// numbers.
func edges(f *flag.Flag, words []string) []string {
	g, ok := f.Value.(flag.Getter)
	if !ok {
		return words
	}
	switch g.Get().(type) {
	case bool:
		return []string{"true", "false"}
	case int, int64, uint, uint64:
		return []string{"-1", "0", "1", "1000000000"}
	case float64:
		return []string{"-1", "0", "0.001", "1000000"}
	case time.Duration:
		return []string{"-1s", "0s", "1ns", "3s", "1000h"}
	default:
		return words
	}
}

var byDefault = regexp.MustCompile(`(?m)^  --([a-z0-9-]+) is "(.+)", by default$`)

// TestADefaultNeverRefusesAFlag sets each flag alone. A service may refuse the value itself, or ask
// for a flag that has no value; the default of another flag is no reason to refuse a value.
func TestADefaultNeverRefusesAFlag(t *testing.T) {
	t.Chdir(t.TempDir()) // some values name files
	for _, service := range served {
		fs := flag.NewFlagSet("", flag.ContinueOnError)
		service.create().Flags(fs)
		(&observe.Config{}).Flags(fs)
		words := slices.Clone(words)
		fs.VisitAll(func(f *flag.Flag) {
			if strings.Trim(f.DefValue, "-.0123456789nµmsh") != "" { // neither a number nor a duration
				words = append(words, f.DefValue)
			}
		})
		fs.VisitAll(func(f *flag.Flag) {
			started := false
			for _, beside := range service.beside {
				for _, value := range edges(f, words) {
					args := slices.Concat(beside, []string{"--" + f.Name + "=" + value})
					refusal := starting(t, service.create(), args)
					started = started || refusal == ""
					for _, other := range byDefault.FindAllStringSubmatch(refusal, -1) {
						if name := other[1]; name != f.Name && !choices[name] && helps(t, service.create, args, fs.Lookup(name), words) {
							t.Errorf("whence %s %s does not start because of the default of --%s:\n%s", service.name, strings.Join(args, " "), name, refusal)
						}
					}
				}
			}
			if _, typed := f.Value.(flag.Getter); typed && !started && len(edges(f, nil)) > 0 {
				t.Errorf("whence %s starts with no value of --%s", service.name, f.Name)
			}
		})
	}
}

// TestProfilesNeedOneListenerThatServesThem: the admin listener always serves profiles.
func TestProfilesNeedOneListenerThatServesThem(t *testing.T) {
	for args, want := range map[string]string{
		"--pprof":                                                "--pprof needs --metrics-listen",
		"--pprof --metrics-listen 127.0.0.1:0":                   "",
		"--pprof --admin-listen 127.0.0.1:0":                     "",
		"--pprof=false --metrics-listen=:0":                      "",
		"--metrics-listen=:0 --admin-listen=127.0.0.1:0 --pprof": "",
	} {
		for _, service := range served[:3] { // those with an admin listener
			if refusal := starting(t, service.create(), strings.Fields(args)); (refusal == "") != (want == "") || !strings.Contains(refusal, want) {
				t.Errorf("whence %s %s: %q; want %q", service.name, args, refusal, want)
			}
		}
	}
}

// helps reports whether a service starts with args if one more flag has another value.
func helps(t *testing.T, create func() *cli.Service, args []string, other *flag.Flag, words []string) bool {
	t.Helper()
	return slices.ContainsFunc(edges(other, words), func(value string) bool {
		return starting(t, create(), slices.Concat(args, []string{"--" + other.Name + "=" + value})) == ""
	})
}

// nowhere is a value of --listen that cannot be opened. A service tries to open it once it has
// accepted its configuration.
const nowhere = "nowhere"

// starting starts a service, and returns why it refuses its configuration, or "".
func starting(t *testing.T, s *cli.Service, args []string) (refusal string) {
	t.Helper()
	cmd := &cobra.Command{Use: "test", Short: "Test"}
	s.Attach(cmd)
	var out, errs bytes.Buffer
	if status := cli.Execute(t.Context(), cmd, slices.Concat([]string{"--listen", nowhere}, args), &out, &errs); status == 0 || errs.Len() == 0 {
		t.Fatalf("%v: status %d, %s%s", args, status, &out, &errs)
	}
	if strings.HasPrefix(errs.String(), "test: --listen: ") {
		return ""
	}
	return errs.String()
}

// TestAModelServerNeedsOnlyItsAddress: its engine, and the files and the name of its model are found out.
func TestAModelServerNeedsOnlyItsAddress(t *testing.T) {
	for args, want := range map[string]string{
		"--upstream http://127.0.0.1:1":                             "",
		"--upstream 127.0.0.1:1":                                    "",
		"--upstream 127.0.0.1:1 --upstream http://127.0.0.1:2/v1":   "",
		"--upstream 127.0.0.1:1,127.0.0.1:2":                        "",
		"--upstream 127.0.0.1:1 --engine llama.cpp":                 "",
		"--upstream http://127.0.0.1:1 --engine openai":             "",
		"--upstream 127.0.0.1:1 --engine vllm":                      "",
		"--upstream 127.0.0.1:1 --engine sglang":                    "",
		"--upstream http://127.0.0.1:1 --engine ollama":             "",
		"--upstream http://127.0.0.1:1 --upstream-model m":          "",
		"--upstream http://127.0.0.1:1 --upstream-model m,n":        "",
		"--upstream 127.0.0.1:1,127.0.0.1:2 --upstream-model m":     "",
		"--upstream 127.0.0.1:1,127.0.0.1:1 --upstream-model m,n":   "",
		"--upstream 127.0.0.1:1,127.0.0.1:2 --upstream-model m,n,o": "names 3 models, and --upstream 2 servers",
		"--upstream 127.0.0.1:1 --upstream-model m,m":               "--upstream names \"127.0.0.1:1\" twice",
		"--upstream gpu1":                                             "--upstream is \"gpu1\"; it must be a URL",
		"--upstream 127.0.0.1:1 --engine vlm":                         "--engine is \"vlm\"; it must be",
		"--upstream 127.0.0.1:1 --upstream 127.0.0.1:1":               "--upstream names \"127.0.0.1:1\" twice",
		"--upstream http://127.0.0.1:1 --engine sim":                  "--upstream is of use only with",
		"--upstream http://127.0.0.1:1 --engine openai --upstream x:": "--upstream is \"x:\"; it must be a URL",
	} {
		for _, service := range served[:2] { // with chat-service, and so with the model's files
			if refusal := starting(t, service.create(), strings.Fields(args)); (refusal == "") != (want == "") || !strings.Contains(refusal, want) {
				t.Errorf("whence %s %s: %q; want %q", service.name, args, refusal, want)
			}
		}
		if strings.Count(args, "127.0.0.1") > 1 || strings.Contains(args, "x:") || strings.Contains(args, "m,") {
			want = "a worker has one"
		}
		if refusal := starting(t, served[4].create(), strings.Fields(args)); (refusal == "") != (want == "") || !strings.Contains(refusal, want) {
			t.Errorf("whence worker %s: %q; want %q", args, refusal, want)
		}
	}
	for args, want := range map[string]string{
		"--engine sim": "needs --upstream",
		"--upstream 127.0.0.1:1 --worker 127.0.0.1:2": "remove --worker, or remove --upstream",
		"--upstream 127.0.0.1:1 --models models.yaml": "remove --models, or remove --upstream",
	} {
		if refusal := starting(t, served[1].create(), strings.Fields(args)); !strings.Contains(refusal, want) {
			t.Errorf("whence gateway %s: %q; want %q", args, refusal, want)
		}
	}
}
