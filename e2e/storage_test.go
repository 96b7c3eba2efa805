package e2e

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/packages/ssestream"
	"github.com/openai/openai-go/v3/responses"

	"github.com/whence-dev/whence/internal/polltest"
)

// behind returns a request for a background response.
func behind(input string, tokens int64) responses.ResponseNewParams {
	p := responded(input)
	p.Store, p.Background, p.MaxOutputTokens = param.NewOpt(true), param.NewOpt(true), param.NewOpt(tokens)
	return p
}

// awaitResponse waits until a response has ended.
func awaitResponse(t *testing.T, c *openai.Client, id string) (r *responses.Response) {
	t.Helper()
	polltest.Eventually(t, "the response ends", func() bool {
		var err error
		if r, err = c.Responses.Get(t.Context(), id, responses.ResponseGetParams{}); err != nil {
			t.Fatal(err)
		}
		return r.Status != responses.ResponseStatusQueued && r.Status != responses.ResponseStatusInProgress
	})
	return r
}

// An eventTail collects the events of a stored response in the order of their numbers.
type eventTail struct {
	raw  []string // of all events
	last responses.ResponseStreamEventUnion
	text strings.Builder
}

// take reads at most n events.
func (e *eventTail) take(t *testing.T, s *ssestream.Stream[responses.ResponseStreamEventUnion], n int) {
	t.Helper()
	for ; n > 0 && s.Next(); n-- {
		next := s.Current()
		if len(e.raw) > 0 && next.SequenceNumber <= e.last.SequenceNumber {
			t.Errorf("event %d follows event %d", next.SequenceNumber, e.last.SequenceNumber)
		}
		e.last = next
		e.raw = append(e.raw, next.RawJSON())
		if delta, ok := next.AsAny().(responses.ResponseTextDeltaEvent); ok {
			e.text.WriteString(delta.Delta)
		}
	}
}

// after returns the stream of the events of a response after a number; -1 is all events.
func after(t *testing.T, c *openai.Client, id string, number int64) *ssestream.Stream[responses.ResponseStreamEventUnion] {
	p := responses.ResponseGetParams{}
	if number >= 0 {
		p.StartingAfter = param.NewOpt(number)
	}
	return c.Responses.GetStreaming(t.Context(), id, p)
}

const allEvents = 1 << 20

func TestOpenAIGoUsesStoredResponses(t *testing.T) {
	eachTopology(t, flags{worker: []string{"--pace", "200"}}, func(t *testing.T, w *whence) {
		c := w.sdk()
		want := wholeResponse(t, &c, responded(short)).OutputText()
		made := wholeResponse(t, &c, behind(short, 200))
		if got := awaitResponse(t, &c, made.ID); got.OutputText() != want || got.Status != responses.ResponseStatusCompleted {
			t.Errorf("%s", got.RawJSON())
		}
		var all eventTail
		stream := c.Responses.NewStreaming(t.Context(), behind(short, 200))
		all.take(t, stream, 9)
		_ = stream.Close()
		id := "resp_" + strings.SplitN(strings.SplitN(all.raw[0], `"id":"resp_`, 2)[1], `"`, 2)[0]
		all.take(t, after(t, &c, id, all.last.SequenceNumber), allEvents)
		var again eventTail
		again.take(t, after(t, &c, id, -1), allEvents)
		if all.text.String() != want || all.last.Type != "response.completed" || strings.Join(all.raw, "\n") != strings.Join(again.raw, "\n") {
			t.Errorf("in two parts\n%s\nin one read\n%s", strings.Join(all.raw, "\n"), strings.Join(again.raw, "\n"))
		}
		live := wholeResponse(t, &c, behind(long, 900))
		if got, err := c.Responses.Cancel(t.Context(), live.ID); err != nil || got.Status != responses.ResponseStatusCancelled {
			t.Errorf("%v: %s", err, got.RawJSON())
		}
		next := responded("And then?")
		next.PreviousResponseID = param.NewOpt(id)
		if got := wholeResponse(t, &c, next); got.PreviousResponseID != id || got.Usage.InputTokens <= 20 {
			t.Errorf("%s", got.RawJSON())
		}
		if err := c.Responses.Delete(t.Context(), id); err != nil {
			t.Error(err)
		}
		_, err := c.Responses.Get(t.Context(), id, responses.ResponseGetParams{})
		if e, ok := errors.AsType[*openai.Error](err); !ok || e.StatusCode != http.StatusNotFound {
			t.Errorf("a deleted response: %v", err)
		}
		w.idle(t)
	})
}
