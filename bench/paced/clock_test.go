package paced

import (
	"testing"
	"testing/fstest"
	"time"

	"github.com/whence-dev/whence/chat-service/chat"
)

func TestReaderFindsTheTimeOfEachToken(t *testing.T) {
	begin := time.Unix(1700000000, 1_999_990_000)
	var r Reader
	r.Begin(begin)
	at := begin
	for i, gap := range []time.Duration{0, Tick, time.Second, 1900 * time.Millisecond, 0, 3 * time.Millisecond, time.Second} {
		at = at.Add(gap)
		text := appendText(nil, ticks(at))
		if len(text) != width {
			t.Fatalf("the text %q has %d bytes", text, len(text))
		}
		due, rest, ok := r.Next(append(text, "rest"...))
		if off := at.Sub(due); !ok || off < 0 || off >= Tick || string(rest) != "rest" {
			t.Errorf("token %d was due at %v, read as %v (%t), rest %q", i, at, due, ok, rest)
		}
	}
	for _, bad := range []string{"", " 1234", "12345 ", " 1234x"} {
		if _, _, ok := r.Next([]byte(bad)); ok {
			t.Errorf("%q is read as a token", bad)
		}
	}
}

// TestModelDecodesTheClock: the ids that the worker sends decode to the text that the SSE interface
// sends.
func TestModelDecodesTheClock(t *testing.T) {
	all, err := files()
	if err != nil {
		t.Fatal(err)
	}
	dir := fstest.MapFS{}
	for name, b := range all {
		dir[name] = &fstest.MapFile{Data: b}
	}
	m, err := chat.Load(dir, Model, "")
	if err != nil {
		t.Fatal(err)
	}
	if m.ContextLength != ContextLength || m.Checksum != checksum() || m.Checksum == "" {
		t.Errorf("context %d, checksum %q and %q", m.ContextLength, m.Checksum, checksum())
	}
	for _, at := range []int64{0, 1, 12345, Ticks - 1, Ticks, 7*Ticks + 42} {
		want := string(appendText(nil, at))
		ids := []uint32{firstClock + uint32(at%Ticks)}
		if got, spelled := m.Tokenizer.Decode(ids, false), Spell(ids); got != want || spelled != want {
			t.Errorf("tick %d is %q, spelled %q, want %q", at, got, spelled, want)
		}
	}
	for _, id := range m.Tokenizer.Encode("Call 12345 or 00042 at 99999.", false) {
		if id >= firstClock {
			t.Errorf("a prompt has token %d of the clock", id)
		}
	}
}

func TestPhases(t *testing.T) {
	first := time.Unix(1700000000, 123456789)
	const period = 20 * time.Millisecond
	if got := (Pace{Period: period, InStep: true}).second(first); got.UnixNano()%int64(period) != 0 || !got.After(first) || got.Sub(first) > period {
		t.Errorf("in step, the second token is due %v after the first, at %v", got.Sub(first), got)
	}
	for range 100 {
		if got := (Pace{Period: period}).second(first).Sub(first); got < 0 || got >= period {
			t.Errorf("spread, the second token is due %v after the first", got)
		}
	}
}
