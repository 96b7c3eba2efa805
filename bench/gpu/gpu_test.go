package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/whence-dev/whence/bench/gpu/fake"
	"github.com/whence-dev/whence/internal/leaktest"
	"github.com/whence-dev/whence/internal/tier"
	"github.com/whence-dev/whence/internal/whencetiny"
	"github.com/whence-dev/whence/lab"
)

// TestMain is also the fake of the servers: the test finds this program under their names.
func TestMain(m *testing.M) {
	if name := filepath.Base(os.Args[0]); name == "vllm" || name == "python3" {
		if err := fake.Run(os.Args); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	leaktest.Main(m)
}

// onMachine makes this machine one on which servers are installed, and returns the directory of a model.
func onMachine(t *testing.T, names ...string) (model string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	for _, name := range names {
		if err := os.Symlink(self, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin+string(filepath.ListSeparator)+os.Getenv("PATH"))
	model = filepath.Join(t.TempDir(), "tiny")
	if err := os.CopyFS(model, whencetiny.FS()); err != nil {
		t.Fatal(err)
	}
	return model
}

// TestRowsPlayAgainstFakesOfBothServers plays the whole script. It checks no times.
func TestRowsPlayAgainstFakesOfBothServers(t *testing.T) {
	tier.Full(t)
	model := onMachine(t, "vllm", "python3")
	docs := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(docs, []byte("before\n<!-- gpu -->\n<!-- end of gpu -->\nafter\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := run(t.Context(), []string{"--model", model, "--rounds", "3", "--docs", docs}, &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	page, err := os.ReadFile(docs)
	if err != nil || !strings.Contains(string(page), out.String()) || !strings.Contains(string(page), "vllm 0.0.0+fake, sglang 0.0.0+fake, tiny") {
		t.Errorf("%v: %s", err, page)
	}
	value := func(server, what string) string {
		for line := range strings.Lines(out.String()) {
			if cells := strings.Split(line, " | "); strings.HasPrefix(line, "| "+server+" |") && strings.HasPrefix(cells[2], what) {
				return strings.TrimSuffix(strings.TrimSpace(cells[3]), " |")
			}
		}
		return "no row"
	}
	for _, server := range []string{"vllm", "sglang"} {
		if got := value(server, "endings"); got != fmt.Sprintf("%d of %d", len(endingRows), len(endingRows)) {
			t.Errorf("%s: %s endings are right", server, got)
		}
		for _, setting := range []string{"without", "with"} {
			var equal, moved int
			got := value(server, setting+" batch invariance: moved")
			if _, err := fmt.Sscanf(got, "%d of %d", &equal, &moved); err != nil || moved == 0 || setting == "with" && equal != moved || setting == "without" && equal == moved {
				t.Errorf("%s, %s batch invariance: %s moved streams are equal", server, setting, got)
			}
		}
		var cached int
		if _, err := fmt.Sscanf(value(server, "--policy kv: prompt"), "%d", &cached); err != nil || cached < 50 {
			t.Errorf("%s: with --policy kv, %d %% of the prompts are cached: %v", server, cached, err)
		}
		for _, what := range []string{"from the client's leaving", "wasted by the server on a stream left in decode", "wasted by the server on a stream left in the prefill"} {
			if got := value(server, what); got == "-" || got == "no row" {
				t.Errorf("%s: %s: %s", server, what, got)
			}
		}
	}
	if t.Failed() {
		t.Log(out.String())
	}
}

// A row whose requests fail must end with their error. It panicked.
func TestRowsFailWithTheErrorOfTheirRequests(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := ln.Addr().String()
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	s := &stand{Path: &lab.Path{Edges: []*lab.Process{{Addr: closed}}}, opts: &options{rounds: 1}}
	r, err := s.stream(t.Context(), ask{prompt: tale, tokens: 1})
	if err == nil || r == nil || r.done || len(r.ids) != 0 {
		t.Errorf("a request without a server: %+v, %v", r, err)
	}
}

// A server that accepts connections and never answers is not ready, and the wait for it ends.
func TestServerThatHangsIsNotReady(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	s := &stand{}
	if s.listed(ctx, &launch{port: ln.Addr().(*net.TCPAddr).Port}) {
		t.Error("it is ready")
	}
}

func TestMachineWithoutServersIsRefused(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	err := run(t.Context(), []string{"--model", "x"}, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "none of vllm, sglang is installed") {
		t.Error(err)
	}
}

func TestOneServerIsPlayedWhereTheOtherIsNotInstalled(t *testing.T) {
	onMachine(t, "vllm")
	makes, err := installed(t.Context(), []string{"vllm", "sglang"})
	if err != nil || len(makes) == 0 || makes[0].name != "vllm" || makes[0].version != "0.0.0+fake" {
		t.Error(makes, err)
	}
	if _, err := installed(t.Context(), []string{"llama"}); err == nil {
		t.Error("an unknown server is played")
	}
}

func TestInvalidOptionsAreRefused(t *testing.T) {
	for _, args := range [][]string{{}, {"--model", "x", "y"}, {"--model", "x", "--rounds", "0"}} {
		if err := run(t.Context(), args, io.Discard); err == nil {
			t.Errorf("%q", args)
		}
	}
}
