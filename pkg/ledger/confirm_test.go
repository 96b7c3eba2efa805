package ledger_test

import (
	"testing"

	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/rpc/observer"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// TestStopIsConfirmedByAllCallsThatWereOpen: one of several choices does not confirm a stop alone.
// Neither does a call that broke, nor a worker that was abandoned.
func TestStopIsConfirmedByAllCallsThatWereOpen(t *testing.T) {
	const calling, confirmed, unconfirmed, left, over = observer.Calling, observer.Confirmed, observer.Unconfirmed, observer.CalleeLeft, observer.CallOver
	for name, test := range map[string]struct {
		before, after []observer.Kind // the stop
		want          bool
	}{
		"one call":                       {[]observer.Kind{calling}, []observer.Kind{confirmed, over}, true},
		"one call that broke":            {[]observer.Kind{calling}, []observer.Kind{unconfirmed, over}, false},
		"one of two choices":             {[]observer.Kind{calling, calling}, []observer.Kind{confirmed, over}, false},
		"two choices":                    {[]observer.Kind{calling, calling}, []observer.Kind{confirmed, over, confirmed, over}, true},
		"two choices, one broke":         {[]observer.Kind{calling, calling}, []observer.Kind{unconfirmed, over, confirmed, over}, false},
		"a worker that was left":         {[]observer.Kind{calling, left}, nil, false},
		"a worker after one was left":    {[]observer.Kind{calling, left, calling}, []observer.Kind{confirmed, over}, true},
		"a worker after one that failed": {[]observer.Kind{calling, over, calling}, []observer.Kind{confirmed, over}, true},
	} {
		var l ledger.Ledger
		r := l.Open("id", "hop", "")
		for _, kind := range test.before {
			r.Note(observer.Event{Kind: kind})
		}
		r.Stopping(streamerr.New(streamerr.UserStop, "enough"))
		for _, kind := range test.after {
			r.Note(observer.Event{Kind: kind})
		}
		if got := l.Get("id").GetStopConfirmed() != nil; got != test.want {
			t.Errorf("%s: confirmed is %v, want %v", name, got, test.want)
		}
	}
}
