package follow_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/whence-dev/whence/api-service/follow"
	"github.com/whence-dev/whence/api-service/replay"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func item(d *chatv1.Delta) *chatv1.GenerateResponse {
	return &chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_Delta{Delta: d}}
}

// TestReadersGetTheBytesThatAreStored: two readers that keep up both get the bytes that the
// recorder has encoded, with no more than a frame around them.
func TestReadersGetTheBytesThatAreStored(t *testing.T) {
	for _, c := range []struct {
		name  string
		apart bool
		delta *chatv1.Delta
		want  string
	}{
		{"text", false, &chatv1.Delta{Text: "<é>\"\n"}, `{"text":"<é>\"\n"}`},
		{"no text", false, &chatv1.Delta{}, `{"text":""}`},
		{"reasoning", false, &chatv1.Delta{Text: "a", Reasoning: "h\\"}, `{"text":"a","reasoning":"h\\"}`},
		{"call", false, &chatv1.Delta{ToolCalls: []*chatv1.ToolCallDelta{{Id: "1", Name: "f", Arguments: `{"`}}}, `{"text":"","calls":[{"index":0,"id":"1","name":"f","arguments":"{\""}]}`},
		{"choice", true, &chatv1.Delta{Choice: 2, Text: "a\tb"}, `{"choices":[{"index":2,"text":"a\tb"}]}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := replay.NewMemory(replay.Limits{})
			defer l.Close()
			r := record(t, l, c.apart)
			if _, err := r.Record(item(c.delta)); err != nil {
				t.Fatal(err)
			}
			stored := events(t, l, 0)[0].Data
			for _, separator := range []string{"\xfe", "\xff"} {
				stored = strings.TrimSuffix(strings.TrimPrefix(stored, separator), separator)
			}
			if _, err := r.Record(&chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_End{End: &llmv1.End{}}}); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				var got []string
				if _, err := follow.Follow(t.Context(), open(t, l, "s"), 0, func(_, _ string, data []byte) error {
					got = append(got, string(data))
					return nil
				}); err != nil {
					t.Fatal(err)
				}
				if got[0] != c.want || !strings.Contains(got[0], stored) {
					t.Errorf("got %s\nwant %s\nwith %s", got[0], c.want, stored)
				}
			}
		})
	}
}

// An answer is the result of all deltas that a reader gets: for each choice its text, reasoning,
// calls and finish.
type answer struct {
	text, reasoning, finish string
	calls                   []string
}

// TestSlowReadersGetTheSameAnswer: readers from every cursor get the same answer, however the log
// has merged the rest.
func TestSlowReadersGetTheSameAnswer(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		apart := seed%2 == 1
		l := replay.NewMemory(replay.Limits{})
		recorder := record(t, l, apart)
		n := 1 + r.IntN(40)
		for range n {
			if _, err := recorder.Record(item(randomDelta(r, apart))); err != nil {
				t.Fatal(err)
			}
		}
		if err := recorder.Fail(&streamerr.Error{Reason: streamerr.PeerLost}); err != nil {
			t.Fatal(err)
		}
		var whole []string // the data of each event by itself
		for after := range uint64(n) {
			reader := open(t, l, "s")
			one := replay.NewMemory(replay.Limits{})
			if _, err := one.Begin(t.Context(), replay.Head{ID: "s", Epoch: "e"}); err != nil {
				t.Fatal(err)
			}
			p, err := reader.Read(t.Context(), after)
			if err != nil {
				t.Fatal(err)
			}
			// The data of the first delta alone: the data of the page without the data of the next
			// page.
			first := p.Events[0].Data
			if after+1 < uint64(n) {
				next, err := reader.Read(t.Context(), after+1)
				if err != nil {
					t.Fatal(err)
				}
				first = strings.TrimSuffix(first, next.Events[0].Data)
			}
			if err := one.Append("s", "e", replay.Event{Kind: replay.Delta, Data: first}, replay.Event{Kind: replay.Ending}); err != nil {
				t.Fatal(err)
			}
			whole = append(whole, data(t, one, 0)[0])
			reader.Close()
			_ = one.Close()
		}
		for after := range n {
			if got, want := read(t, data(t, l, uint64(after))[:1]), read(t, whole[after:]); !reflect.DeepEqual(got, want) {
				t.Fatalf("seed %d, after %d of %d: got %+v, want %+v", seed, after, n, got, want)
			}
		}
		_ = l.Close()
	}
}

// data returns the data of the events after a cursor.
func data(t *testing.T, l replay.Log, after uint64) (all []string) {
	t.Helper()
	r := open(t, l, "s")
	defer r.Close()
	if _, err := follow.Follow(t.Context(), r, after, func(_, _ string, data []byte) error {
		all = append(all, string(data))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

func randomDelta(r *rand.Rand, apart bool) *chatv1.Delta {
	words := []string{"", "a", "\"", "\\", "é", "\n", "<b>", "\u2028", "\x00", "😀"}
	word := func() string { return words[r.IntN(len(words))] + words[r.IntN(len(words))] }
	d := &chatv1.Delta{Text: word()}
	if apart {
		d.Choice = uint32(r.IntN(3))
	}
	if r.IntN(3) == 0 {
		d.Reasoning = word()
	}
	if r.IntN(4) == 0 {
		d.ToolCalls = []*chatv1.ToolCallDelta{{Index: uint32(r.IntN(2)), Arguments: word()}}
		if r.IntN(2) == 0 {
			d.ToolCalls[0].Id, d.ToolCalls[0].Name = word(), "f"
		}
	}
	return d
}

// read joins deltas as a client does.
func read(t *testing.T, deltas []string) map[int]answer {
	t.Helper()
	type delta struct {
		Index                   int
		Text, Reasoning, Finish string
		Calls                   []struct {
			Index     int
			Arguments string
		}
	}
	all := map[int]answer{}
	for _, text := range deltas {
		var d struct {
			delta
			Choices []delta
		}
		if err := json.Unmarshal([]byte(text), &d); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if d.Choices == nil {
			d.Choices = []delta{d.delta}
		}
		for _, next := range d.Choices {
			a := all[next.Index]
			a.text += next.Text
			a.reasoning += next.Reasoning
			a.finish += next.Finish
			for _, c := range next.Calls {
				if n := len(a.calls); n > 0 && strings.HasPrefix(a.calls[n-1], fmt.Sprint(c.Index, ":")) {
					a.calls = slices.Clone(a.calls)
					a.calls[n-1] += c.Arguments
				} else {
					a.calls = append(slices.Clone(a.calls), fmt.Sprint(c.Index, ":", c.Arguments))
				}
			}
			all[next.Index] = a
		}
	}
	return all
}

// TestRecordingTextCostsNoAllocation also covers reasoning, calls, and text that names its choice.
func TestRecordingTextCostsNoAllocation(t *testing.T) {
	for name, d := range map[string]*chatv1.Delta{
		"text": {Text: " token\n"}, "reasoning": {Reasoning: "because"},
		"call": {ToolCalls: []*chatv1.ToolCallDelta{{Index: 1, Arguments: `{"a":`}}},
	} {
		for _, apart := range []bool{false, true} {
			l := replay.NewMemory(replay.Limits{})
			r, out := record(t, l, apart), item(d)
			if n := testing.AllocsPerRun(5000, func() {
				if _, err := r.Record(out); err != nil {
					t.Fatal(err)
				}
			}); n > 0 {
				t.Errorf("%s, apart %t: %v allocations", name, apart, n)
			}
			_ = l.Close()
		}
	}
}

// BenchmarkRecordAndFollow records tokens and writes each to one reader.
func BenchmarkRecordAndFollow(b *testing.B) {
	l := replay.NewMemory(replay.Limits{Bytes: 1 << 30, StreamBytes: 1 << 30})
	defer l.Close()
	if _, err := l.Begin(b.Context(), replay.Head{ID: "s", Epoch: "e"}); err != nil {
		b.Fatal(err)
	}
	w, err := l.Writer("s", "e")
	if err != nil {
		b.Fatal(err)
	}
	reader, err := l.Open(b.Context(), "s")
	if err != nil {
		b.Fatal(err)
	}
	defer reader.Close()
	recorder, token, n := follow.NewRecorder(w, false, nil), item(&chatv1.Delta{Text: " token"}), 0
	record := func() {
		out := token
		if n++; n > b.N {
			out = &chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_End{End: &llmv1.End{}}}
		}
		if _, err := recorder.Record(out); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	record()
	if _, err := follow.Follow(b.Context(), reader, 0, func(_, name string, _ []byte) error {
		if name == string(replay.Delta) {
			record()
		}
		return nil
	}); err != nil {
		b.Fatal(err)
	}
}
