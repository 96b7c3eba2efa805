package crash_test

import (
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/whence-dev/whence/chat-service/crash"
	"github.com/whence-dev/whence/internal/leaktest"
	"github.com/whence-dev/whence/internal/panicvalue"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// elsewhere runs f on a new goroutine, and returns its crash, or nil.
func elsewhere(f func()) (crashed *crash.Crash) {
	var running sync.WaitGroup
	running.Go(func() { crash.Watch(f, func(c *crash.Crash) { crashed = c }) })
	running.Wait()
	return crashed
}

func TestReturnIsNoCrash(t *testing.T) {
	c := elsewhere(func() {})
	if c != nil {
		t.Errorf("%+v", c)
	}
	c.Repeat()
}

func TestPanicIsRepeatedWithItsStack(t *testing.T) {
	c := elsewhere(func() { explode() })
	if text := c.Error(); !c.Panicked() || !strings.HasPrefix(text, "a bug\n") || !strings.Contains(text, "explode") {
		t.Errorf("%t %q", c.Panicked(), text)
	}
	if text := panicvalue.Text(c); strings.Contains(text, "a bug") || !strings.Contains(text, "explode") {
		t.Errorf("the log says %q", text)
	}
	defer func() {
		if v := recover(); v != any(c) {
			t.Errorf("repeated %v", v)
		}
	}()
	c.Repeat()
	t.Error("no panic")
}

func explode() { panic("a bug") }

func TestExitIsRepeated(t *testing.T) {
	c := elsewhere(runtime.Goexit)
	if c.Panicked() {
		t.Error("an exit counts as a panic")
	}
	after := false
	again := elsewhere(func() {
		c.Repeat()
		after = true
	})
	if again.Panicked() || after {
		t.Error("the exit was not repeated")
	}
}

// Deferred calls still run after an exit, and the code after Watch does not.
func TestExitContinues(t *testing.T) {
	var running sync.WaitGroup
	deferred, after := false, false
	running.Go(func() {
		defer func() { deferred = true }()
		crash.Watch(runtime.Goexit, func(*crash.Crash) {})
		after = true
	})
	running.Wait()
	if !deferred || after {
		t.Errorf("deferred %t, after %t", deferred, after)
	}
}
