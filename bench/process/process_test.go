package process_test

import (
	"testing"

	"github.com/whence-dev/whence/bench/process"
)

// TestDescendantsAreCounted: the CPU time of a shell includes its child, and an ended process has
// no CPU time.
func TestDescendantsAreCounted(t *testing.T) {
	p, err := process.Start(t.TempDir(), "shell", "sh", "-c", "sh -c 'while :; do :; done' & trap \"kill $!\" TERM; wait")
	if err != nil {
		t.Fatal(err)
	}
	defer p.End()
	for begun := int64(-1); ; {
		spent, err := p.CPU()
		if err != nil {
			t.Fatal(err)
		}
		if begun < 0 {
			begun = spent.Milliseconds()
		}
		if spent.Milliseconds()-begun >= 50 { // the outer shell only waits
			break
		}
	}
	if n, err := p.RSS(); err != nil || n <= 0 {
		t.Errorf("the memory is %d bytes, %v", n, err)
	}
}

func TestEndedProcessHasNoCPU(t *testing.T) {
	p, err := process.Start(t.TempDir(), "sleep", "sleep", "600")
	if err != nil {
		t.Fatal(err)
	}
	p.End()
	if _, err := p.CPU(); err == nil {
		t.Error("an ended process has a CPU time")
	}
}
