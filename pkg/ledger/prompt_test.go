package ledger_test

import (
	"context"
	"testing"

	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/rpc/observer"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// TestPromptsSentBeforeAStopCount: a stopped stream pays for the prompts that workers had at that
// time, once each. The count of a worker that has admitted the stream has precedence.
func TestPromptsSentBeforeAStopCount(t *testing.T) {
	const calling, over, left = observer.Calling, observer.CallOver, observer.CalleeLeft
	one, two := &ledger.Prompt{Tokens: 7}, &ledger.Prompt{Tokens: 5}
	for name, c := range map[string]struct {
		steps []any // what happens before the stop: a Prompt is sent, a message announced, a Kind noted, a number consumed below
		after []any
		want  uint32
	}{
		"nothing was sent":                       {nil, nil, 0},
		"a worker has the prompt":                {[]any{one, calling}, nil, 7},
		"the worker's call is over":              {[]any{one, calling, over}, nil, 0},
		"the worker was left":                    {[]any{one, calling, left}, nil, 0},
		"another worker has it":                  {[]any{one, calling, over, one, calling}, nil, 7},
		"two answers to one prompt":              {[]any{one, calling, one, calling}, nil, 7},
		"two prompts":                            {[]any{one, calling, two, calling}, nil, 12},
		"a call that begins after the stop":      {nil, []any{one, calling}, 0},
		"a worker has admitted it":               {[]any{one, calling, admitted(9)}, nil, 9},
		"a worker admits it after the stop":      {[]any{one, calling}, []any{admitted(9)}, 9},
		"the second turn of a conversation":      {[]any{one, calling, admitted(7), turnEnd(used(7, 0)), over, two, calling}, nil, 12},
		"between two turns":                      {[]any{one, calling, admitted(7), turnEnd(used(7, 0)), over}, nil, 7},
		"the hop below has counted":              {nil, []any{7, over}, 7},
		"the hop below has counted two turns":    {[]any{admitted(7), turnEnd(used(7, 0))}, []any{19}, 19},
		"counted below after the admission":      {[]any{admitted(7)}, []any{9}, 7},
		"two calls have counted the same prompt": {nil, []any{7, 7}, 7},
		"a worker has counted one of two":        {[]any{one, calling, two, calling}, []any{7, 5}, 12},
		"a worker has refused what one has read": {[]any{one, calling, two, calling, 5, over, over}, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			prompts := map[*ledger.Prompt]*ledger.Prompt{one: {Tokens: one.Tokens}, two: {Tokens: two.Tokens}}
			records := usageRecords(t, func(l *ledger.Ledger) {
				r, _ := l.Begin(context.Background(), observer.Beginning{ID: "a", Hop: "hop", First: true}).(*ledger.Record)
				play := func(steps []any) {
					for _, step := range steps {
						switch step := step.(type) {
						case *ledger.Prompt:
							ledger.SendsPrompt(ledger.WithPrompt(ledger.With(t.Context(), r), prompts[step]))
						case observer.Kind:
							note(r, step)
						case int:
							r.Note(observer.Event{Kind: observer.Consumed, Tokens: step})
						default:
							r.Note(observer.Event{Kind: observer.Announced, Message: step})
						}
					}
				}
				play(c.steps)
				r.Note(observer.Event{Kind: observer.StopHeard, Err: streamerr.New(streamerr.ClientGone, "gone")})
				play(c.after)
				if n := r.Consumed(); n != int(c.want) {
					t.Errorf("the caller is told %d tokens, want %d", n, c.want)
				}
				note(r, observer.Ended)
				r.Close()
			})
			if len(records) != 1 || records[0].Prompt != c.want {
				t.Errorf("the usage records are %+v, want %d tokens of prompts", records, c.want)
			}
		})
	}
}

// TestPromptOfACallThatOutlivesItsStreamCounts: the usage record waits for the end of the call.
func TestPromptOfACallThatOutlivesItsStreamCounts(t *testing.T) {
	records := usageRecords(t, func(l *ledger.Ledger) {
		f := observer.Shield(l.Begin(context.Background(), observer.Beginning{ID: "a", Hop: "hop", First: true}), func(v any) { t.Error(v) })
		note(f, observer.Calling, observer.CalleeLeft, observer.Ended)
		f.Close()
		f.Note(observer.Event{Kind: observer.Consumed, Tokens: 7})
		note(f, observer.CalleeGone)
		if n := l.Owed(); n != 0 {
			t.Errorf("%d records wait for the end of a call that is over", n)
		}
	})
	if len(records) != 1 || records[0].Prompt != 7 {
		t.Errorf("the usage records are %+v", records)
	}
}
