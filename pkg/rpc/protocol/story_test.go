package protocol

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/whence-dev/whence/internal/storytest"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A machine is a Caller or a Callee.
type machine interface {
	Step(now time.Duration, e Event) []Action
	Wake() time.Duration
}

var events = map[string]Kind{
	"tick": Tick, "stop": Stop, "item": Item,
	"open": Open, "opened": Opened, "end": End, "left": Left, "untold": Untold, "over": Over,
	"halt": Halt, "killed": Killed, "message": Message, "unreadable": Unreadable, "half-close": HalfClose, "lost": Lost, "sent": Sent, "unsent": Unsent,
	"done": Done, "answered": Answered,
}

var verbs = map[Verb]string{
	Deliver: "deliver", Drop: "drop",
	Call: "call", SendStop: "send stop", Reset: "reset", Hold: "hold", DeliverHeld: "deliver the held message", Confirm: "confirm", Unconfirmed: "unconfirmed",
	Leave: "leave", Finish: "finish",
	StopEngine: "stop the engine", Kill: "kill the engine", Put: "put", CloseInput: "close the input", Gone: "gone", Answer: "answer", Record: "record", Abandon: "abandon",
}

// TestStories plays the scripts of testdata. A story begins with the machine, "caller" or "callee",
// and its config. A line without indentation is an event and its time. The indented lines below it
// are the resulting actions, and the time of the next Tick.
//
//	caller mute endless grace=1s
//	0s open
//	5ms stop client client_gone grace=200ms
//	6ms over own worker user_stop
func TestStories(t *testing.T) {
	var m machine
	storytest.Play(t, func(t *testing.T, line string) []string {
		if strings.HasPrefix(line, "caller") || strings.HasPrefix(line, "callee") {
			m = newMachine(t, line)
			return nil
		}
		return play(t, m, line)
	})
}

func newMachine(t *testing.T, line string) machine {
	t.Helper()
	words := strings.Fields(line)
	caller, callee := CallerConfig{Self: "self", Peer: "peer"}, CalleeConfig{}
	for _, word := range words[1:] {
		switch key, value, _ := strings.Cut(word, "="); key {
		case "mute":
			caller.Mute = true
		case "endless":
			caller.Endless = true
		case "unary":
			caller.Unary = true
		case "sequence":
			callee.Sequence = true
		case "whole":
			callee.Whole = true
		case "grace":
			caller.Grace = duration(t, value)
			callee.Grace = caller.Grace
		default:
			t.Fatal(line)
		}
	}
	if words[0] == "caller" {
		return NewCaller(caller)
	}
	return NewCallee(callee)
}

func play(t *testing.T, m machine, line string) (actions []string) {
	t.Helper()
	words := strings.Fields(line)
	kind, ok := events[words[1]]
	if !ok {
		t.Fatalf("unknown event %q", words[1])
	}
	e := Event{Kind: kind}
	var rest []string
	for _, word := range words[2:] {
		switch key, value, _ := strings.Cut(word, "="); key {
		case "own":
			e.Own = true
		case "part":
			e.Part = true
		case "grace":
			e.Grace = duration(t, value)
		default:
			rest = append(rest, word)
		}
	}
	if len(rest) == 2 {
		e.Err = &streamerr.Error{Reason: streamerr.ParseReason(rest[1]), Path: streamerr.NewPath(rest[0]), Message: "as scripted"}
	}
	for _, a := range m.Step(duration(t, words[0]), e) {
		text := verbs[a.Verb]
		if a.Grace > 0 {
			text += fmt.Sprintf(" within %v", a.Grace)
		}
		if a.Err != nil {
			text += fmt.Sprintf(" because %v", a.Err)
		}
		actions = append(actions, text)
	}
	if wake := m.Wake(); wake > 0 {
		actions = append(actions, fmt.Sprint("wake at ", wake))
	}
	return actions
}

func duration(t *testing.T, s string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}
