package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/internal/tier"
	"github.com/whence-dev/whence/lab"
)

// clockDir is the directory of binDir with the clocks of processes: a file named by a process id has
// the number of seconds by which that process's clock is wrong.
const clockDir = "clock"

// clockEnv names clockDir to commands with clocks that can be set.
const clockEnv = "E2E_CLOCK"

// clockOverlay writes an overlay for go build (-overlay) to dir, and returns its name. Commands that
// are built with it have a clock that can be set: Go reads the clock without a system call, so that
// nothing outside of a process can change what time.Now returns in that process alone. Only the time
// of day changes; the monotonic clock runs on.
func clockOverlay(dir string) (string, error) {
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "", err
	}
	root := filepath.Join(strings.TrimSpace(string(out)), "src", "runtime")
	replaced := map[string]string{}
	edit := func(file string, pairs ...string) error {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			return err
		}
		edited := string(text)
		for i := 0; i < len(pairs); i += 2 {
			if !strings.Contains(edited, pairs[i]) {
				return fmt.Errorf("%s of this version of Go has no %q", file, pairs[i])
			}
			edited = strings.Replace(edited, pairs[i], pairs[i+1], 1)
		}
		replaced[filepath.Join(root, file)] = filepath.Join(dir, file)
		return os.WriteFile(filepath.Join(dir, file), []byte(edited), 0o600)
	}
	const step = `
var wallStep int64

//go:linkname stepWall main.stepWall
func stepWall(seconds int64) { wallStep = seconds }
`
	if runtime.GOOS == "linux" && runtime.GOARCH == "amd64" {
		const now = "func time_now() (sec int64, nsec int32, mono int64)"
		err = edit("timeasm.go", now, now+` {
	sec, nsec, mono = realNow()
	return sec + wallStep, nsec, mono
}

func realNow() (sec int64, nsec int32, mono int64)
`+step)
		if err == nil {
			err = edit("time_linux_amd64.s", "TEXT time·now<ABIInternal>", "TEXT ·realNow<ABIInternal>")
		}
	} else {
		err = edit("timestub.go", "return sec, nsec, nanotime()", "return sec + wallStep, nsec, nanotime()", `import _ "unsafe" // for go:linkname`, `import _ "unsafe" // for go:linkname`+"\n"+step)
	}
	if err != nil {
		return "", err
	}
	setter, empty := filepath.Join(dir, "setter.go"), filepath.Join(dir, "empty.s")
	if err := os.WriteFile(setter, []byte(setterSource), 0o600); err != nil {
		return "", err
	}
	if err := os.WriteFile(empty, nil, 0o600); err != nil { // allows a function without a body
		return "", err
	}
	module, err := filepath.Abs("..")
	if err != nil {
		return "", err
	}
	for _, command := range []string{".", "api-service", "chat-service", "llm-worker", "e2e/faulty"} {
		replaced[filepath.Join(module, command, "clocksetter.go")] = setter
		replaced[filepath.Join(module, command, "clocksetter.s")] = empty
	}
	b, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, "overlay.json")
	return name, os.WriteFile(name, b, 0o600)
}

const setterSource = `package main

import (
	"os"
	"path/filepath"
	"strconv"
	"time"
	_ "unsafe"
)

func stepWall(seconds int64)

func init() {
	dir := os.Getenv("` + clockEnv + `")
	if dir == "" {
		return
	}
	go func() {
		for ; ; time.Sleep(20 * time.Millisecond) {
			b, err := os.ReadFile(filepath.Join(dir, strconv.Itoa(os.Getpid())))
			if err != nil {
				continue
			}
			if n, err := strconv.ParseInt(string(b), 10, 64); err == nil {
				stepWall(n)
			}
		}
	}()
}
`

// setClock sets the clock of a process to a wrong time.
func (p *process) setClock(t *testing.T, wrong time.Duration) {
	t.Helper()
	name := filepath.Join(binDir, clockDir, strconv.Itoa(p.Pid()))
	if err := os.WriteFile(name+".new", []byte(strconv.FormatInt(int64(wrong.Seconds()), 10)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(name+".new", name); err != nil { // a reader never sees half of a number
		t.Fatal(err)
	}
}

// TestClockSteps sets the clocks of all processes, one after another, while streams run: forward and
// back by an hour, and by a year. Every stream completes. Then an instance whose clock is wrong dies,
// and the other one continues its stream.
func TestClockSteps(t *testing.T) {
	tier.Full(t)
	withClocks(t)
	t.Parallel()
	s, _ := replicas(t, "60")
	want, whole := s.answer(t, greedy(short)), s.answer(t, greedy(long, "max_tokens", 300))
	m := s.makeStream(t, greedy(long, "max_tokens", 300))
	here, there := m.read(t, s.addrs[api0]).begun(), m.read(t, s.addrs[api1]).begun()

	var over atomic.Bool
	var clients sync.WaitGroup
	for client := range 4 {
		clients.Go(func() {
			for n := 0; !over.Load(); n++ {
				if outcome := s.chaosStream(t, fmt.Sprintf("clock-%d-%d", client, n), want); outcome != done {
					t.Errorf("a stream ended with %s", outcome)
				}
			}
		})
	}
	year := 365 * 24 * time.Hour
	for _, wrong := range []time.Duration{time.Hour, -time.Hour, year, -year, 0} {
		for _, hop := range []string{workers[0], api1, chatService, api0} {
			s.procs[hop].setClock(t, wrong)
			lab.Pause(t.Context(), 100*time.Millisecond)
		}
	}
	over.Store(true)
	clients.Wait()
	here.rest().completed(whole)
	there.rest().completed(whole)

	m = s.makeStream(t, greedy(long, "max_tokens", 300))
	here = m.read(t, s.addrs[api0]).begun()
	s.procs[api0].setClock(t, time.Hour)
	s.procs[chatService].setClock(t, -time.Hour)
	polltest.Eventually(t, "the clock is an hour ahead", func() bool {
		date, err := time.Parse(time.RFC1123, s.get(t, "/healthz").header.Get("Date"))
		return err == nil && time.Until(date) > 50*time.Minute
	})
	here.next()
	s.procs[api0].kill(t)
	for here.next() {
	}
	here.url = strings.Replace(here.url, s.addrs[api0], s.addrs[api1], 1)
	s.procs[api1].logged(t, "it takes the stream over", func(r record) bool { return r.Msg == "stream moved" && r.Stream == m.ID })
	here.begun().rest().completed(whole)
}
