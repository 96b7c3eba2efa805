package tinyllama

import (
	"testing"
	"time"

	"github.com/whence-dev/whence/pkg/rpc/protocol"
)

func TestChunksKeepStepsWithinABound(t *testing.T) {
	for name, c := range map[string]struct {
		token, step      time.Duration
		alone, answering int
	}{
		"unknown":           {0, 0, 32, 32},
		"tiny model":        {50 * time.Microsecond, 200 * time.Microsecond, 512, 80},
		"half a billion":    {6 * time.Millisecond, 40 * time.Millisecond, 16, 16},
		"on many cores":     {time.Millisecond, 10 * time.Millisecond, 100, 40},
		"very slow":         {time.Second, 3 * time.Second, 16, 16},
		"clock stands":      {1, 0, 512, 512},
		"no answers so far": {time.Millisecond, 0, 100, 16},
	} {
		p := stepPace{Token: c.token, Step: c.step}
		if alone, answering := p.Chunk(false), p.Chunk(true); alone != c.alone || answering != c.answering {
			t.Errorf("%s: chunks of %d and %d, want %d and %d", name, alone, answering, c.alone, c.answering)
		}
	}
}

// A stop ends within its grace only if the step that runs does.
func TestStepsEndWithinTheGraceOfAStop(t *testing.T) {
	worker := protocol.Below(protocol.Below(protocol.DefaultGrace)) // api-service and chat-service keep a part each
	if bound := max(aloneBound, maxBound); bound*3/2 > worker {
		t.Errorf("a step may take %v, and a stop must end within %v", bound, worker)
	}
}

func TestPaceFollowsTheSteps(t *testing.T) {
	var p stepPace
	p.Record(1, 0, 10*time.Millisecond)
	p.Record(9, 1, time.Hour) // says little about large chunks
	if p.Step != 10*time.Millisecond || p.Token != 0 {
		t.Errorf("%+v", p)
	}
	for range 30 {
		p.Record(40, 32, 80*time.Millisecond)
		p.Record(8, 0, 20*time.Millisecond)
	}
	if p.Token < 1990*time.Microsecond || p.Token > 2*time.Millisecond || p.Step < 19*time.Millisecond || p.Step > 20*time.Millisecond {
		t.Errorf("%+v", p)
	}
}
