package failover

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/whence-dev/whence/internal/storytest"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// TestStories plays the scripts in testdata. A line without indentation is a time and an event. The
// indented lines below it are the resulting actions, and the time of the next Wake.
//
//	limits moves=3 silence=10s first-token=10s
//	0s begin
//	0s found a room=9 text reader unread=100 resumes exact-only
//	1s fail a overloaded retry=2s
func TestStories(t *testing.T) {
	var s *story
	storytest.Play(t, func(t *testing.T, line string) []string {
		if strings.HasPrefix(line, "limits") {
			s = newStory(t, line)
			return nil
		}
		return s.play(t, line)
	})
}

type story struct{ m *Machine[string] }

func newStory(t *testing.T, line string) *story {
	l := Limits{Moves: 3, Silence: 10 * time.Second, FirstToken: 10 * time.Second}
	for _, word := range strings.Fields(line)[1:] {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "moves":
			l.Moves = number(t, value)
		case "silence":
			l.Silence = duration(t, value)
		case "first-token":
			l.FirstToken = duration(t, value)
		default:
			t.Fatal(line)
		}
	}
	return &story{New[string](l)}
}

func (s *story) play(t *testing.T, line string) (actions []string) {
	t.Helper()
	words := strings.Fields(line)
	now := duration(t, words[0])
	for _, a := range s.m.Step(now, event(t, words[1], words[2:])) {
		actions = append(actions, a.text())
	}
	if wake := s.m.Wake(); wake > 0 && words[1] != "tokens" {
		actions = append(actions, fmt.Sprint("wake at ", wake))
	}
	return actions
}

func event(t *testing.T, verb string, args []string) Event[string] {
	t.Helper()
	kinds := map[string]Kind{
		"begin": Begin, "found": Found, "not-found": NotFound, "recovering": Recovering, "busy": Busy, "turn": Turn, "reads": ReaderFound, "read": Read, "started": Started, "tokens": Tokens,
		"ended": Ended, "fail": Fail, "down": Down, "tick": Tick, "stop": Stop,
	}
	kind, ok := kinds[verb]
	if !ok {
		t.Fatalf("there is no event %q", verb)
	}
	e := Event[string]{Kind: kind}
	switch kind {
	case Found, ReaderFound:
		e.Choice = choice(t, args)
	case Tokens:
		e.N = number(t, args[0])
	case NotFound:
		e.Err = streamerr.New(streamerr.Unavailable, "nobody")
	case Fail, Stop:
		err := streamerr.New(streamerr.ParseReason(args[1]), "as scripted")
		err.Path = streamerr.NewPath(args[0])
		if len(args) > 2 && args[2] == "holds" {
			err.Param = "stream_id"
		} else if len(args) > 2 {
			err.RetryAfter = duration(t, strings.TrimPrefix(args[2], "retry="))
		}
		e.Err = err
	default:
	}
	return e
}

func choice(t *testing.T, args []string) Choice[string] {
	c := Choice[string]{Worker: args[0], Name: args[0], Room: 100, Exact: true, MayMove: true}
	for _, word := range args[1:] {
		switch key, value, _ := strings.Cut(word, "="); key {
		case "room":
			c.Room = number(t, value)
		case "unread":
			c.Unread = number(t, value)
		case "text":
			c.Text, c.MayMove, c.Exact = true, false, false
		case "reader":
			c.Reader = true
		case "resumes":
			c.Exact = false
		case "exact-only":
			c.MayMove, c.Exact = false, false
		default:
			t.Fatal(args)
		}
	}
	return c
}

func (a *Action[W]) text() string {
	names := map[Verb]string{
		Ask: "ask", Swap: "swap", ReadFor: "read", Call: "call", Deliver: "deliver", Trust: "trust", Blamed: "blame", Leave: "leave", Moved: "moved",
		Wait: "wait", Finish: "finish", End: "end", Done: "done",
	}
	words := []any{names[a.Verb]}
	add := func(when bool, what ...any) {
		if when {
			words = append(words, what...)
		}
	}
	add(a.Verb == Trust || a.Verb == Blamed, a.Worker)
	add(a.As == Failed, "failed")
	add(a.As == Doubted, "doubted")
	add(a.As == Full, "full")
	add(a.Verb == Moved, "from", a.From, "exact", a.Exact)
	add(a.N > 0, a.N)
	add(len(a.Without) > 0, "without", a.Without)
	add(a.Idle, "idle")
	add(a.Again, "again since", a.Since)
	add(a.Move, "paced")
	add(a.Retry && !a.Move, "retry")
	if a.Err != nil {
		words = append(words, "because", a.Err)
		if after := streamerr.As(a.Err).RetryAfter; after > 0 {
			words = append(words, "retry after", after)
		}
	}
	return strings.TrimSuffix(fmt.Sprintln(words...), "\n")
}

func number(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func duration(t *testing.T, s string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestDownWhileTheReaderHasAMessage: the worker was not awaited meanwhile, so its silence
// begins now.
func TestDownWhileTheReaderHasAMessage(t *testing.T) {
	var p Pending
	p.Add(Turn)
	p.Add(Down)
	var got []Kind
	for p != 0 {
		got = append(got, p.Take())
	}
	if len(got) != 3 || got[0] != Tokens || !slices.Contains(got, Down) || !slices.Contains(got, Turn) {
		t.Error(got)
	}
}
