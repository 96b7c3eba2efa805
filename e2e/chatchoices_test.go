package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/lab"
)

// A clientChoice is a client's view of one choice.
type clientChoice struct {
	text, finish string
	likely       []string
}

// readChoices streams an answer and returns its choices. It calls each after every event with text,
// with the number of such events so far.
func (w *whence) readChoices(t *testing.T, a ask, id string, each func(events int)) (all [2]clientChoice) {
	t.Helper()
	resp, err := w.send(t, a, id)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	events, done := 0, false
	for in := lab.NewEvents(resp.Body); !done; {
		e, err := in.Next()
		if err != nil {
			t.Fatalf("the stream has no ending: %v", err)
		}
		if done = e.Data == lab.Done; done || e.Comment != "" {
			continue
		}
		var chunk struct {
			Error   any
			Choices []struct {
				Index        int
				Delta        struct{ Content string }
				FinishReason string `json:"finish_reason"`
				Logprobs     *struct{ Content []json.RawMessage }
			}
		}
		if err := json.Unmarshal([]byte(e.Data), &chunk); err != nil || chunk.Error != nil {
			t.Fatal(e.Data, err)
		}
		for _, c := range chunk.Choices {
			into := &all[c.Index]
			into.text += c.Delta.Content
			into.finish += c.FinishReason
			if c.Logprobs != nil {
				for _, one := range c.Logprobs.Content {
					into.likely = append(into.likely, string(one))
				}
			}
			if c.Delta.Content != "" {
				events++
				each(events)
			}
		}
	}
	return all
}

// TestChoicesAndLogprobsSurviveTheLossOfChatService kills the chat-service of a stream with two
// choices, and of a stream with logprobs. The client must read the undisturbed answer.
func TestChoicesAndLogprobsSurviveTheLossOfChatService(t *testing.T) {
	t.Parallel()
	w := assemble(t, lab.Layout{Workers: 1, Chats: 2, Edges: 1, Worker: []string{"--pace", "40"}})
	asks := map[string]ask{
		"two choices":               greedy(short, "stream", true, "n", 2),
		"logprobs":                  greedy(short, "stream", true, "logprobs", true, "top_logprobs", 2),
		"two choices with logprobs": greedy(short, "stream", true, "n", 2, "logprobs", true, "stop", []string{"never said"}),
	}
	for name, a := range asks {
		want := w.readChoices(t, a, "", func(int) {})
		if want[0].text == "" || want[0].finish == "" || strings.Contains(name, "logprobs") == (len(want[0].likely) == 0) {
			t.Fatalf("%s: undisturbed %+v", name, want)
		}
		id := "moved-" + fmt.Sprint(len(name))
		got := w.readChoices(t, a, id, func(events int) {
			if events != 12 {
				return
			}
			for _, hop := range w.why(t, id).Hops {
				if lab.ServiceOf(hop.Hop) == chatService {
					p := w.processes[hop.Hop]
					p.kill(t)
					p.relaunch(t)
				}
			}
		})
		for i := range got {
			if got[i].text != want[i].text || got[i].finish != want[i].finish || !slices.Equal(got[i].likely, want[i].likely) {
				t.Errorf("%s: choice %d\n got %+v\nwant %+v", name, i, got[i], want[i])
			}
		}
		if moves := w.why(t, id).Hops[0].Moves; len(moves) != 1 {
			t.Errorf("%s: moves %+v", name, moves)
		}
		polltest.Eventually(t, "both take streams", func() bool { w.works(t); return w.readiness() == 200 })
	}
	w.idle(t)
}
