package kitexstream

import (
	"context"
	"errors"
	"testing"
	"time"

	kcodes "github.com/cloudwego/kitex/pkg/remote/trans/nphttp2/codes"
	kstatus "github.com/cloudwego/kitex/pkg/remote/trans/nphttp2/status"

	"github.com/whence-dev/whence/contrib/kitexstream/internal/kitextest"
	"github.com/whence-dev/whence/contrib/kitexstream/streamerr"
)

// An endedContext is a handler's context that ended with an error of Kitex.
type endedContext struct {
	context.Context //nolint:containedctx // it is a context
	err             error
}

// Err implements context.Context.
func (c endedContext) Err() error { return c.err }

func TestReasonOfACanceledGRPCHandler(t *testing.T) {
	reset := kstatus.Err(kcodes.Canceled, "transport: RSTStream Frame received with error code: CANCEL [triggered by shop]")
	broken := kstatus.Err(kcodes.Canceled, "transport: connection EOF [triggered by remote service]")
	aged := kstatus.Err(kcodes.Canceled, "transport: closing server transport due to maximum connection age [triggered by remote service]")
	down := kstatus.Err(kcodes.Unavailable, "graceful shutdown")
	soon := clock{time.Now().Add(-time.Second), 50 * time.Millisecond} // the timer of this hop has fired, too
	far := clock{time.Now().Add(time.Hour), time.Hour}
	for name, test := range map[string]struct {
		err      error
		limit    clock
		draining bool
		lost     bool
		reason   streamerr.Reason
		path     string
	}{
		"a reset":                              {err: reset, reason: streamerr.PeerReset, path: "shop"},
		"a reset long before the deadline":     {err: reset, limit: far, reason: streamerr.PeerReset, path: "shop"},
		"a reset at the deadline":              {err: reset, limit: soon, reason: streamerr.Deadline},
		"this hop's timer":                     {err: context.DeadlineExceeded, limit: far, reason: streamerr.Deadline},
		"a lost connection at the deadline":    {err: broken, limit: soon, reason: streamerr.PeerLost, path: "shop"},
		"a connection that was too old":        {err: aged, limit: soon, reason: streamerr.Draining},
		"a shutdown of this server":            {err: down, limit: soon, draining: true, reason: streamerr.Draining},
		"a shutdown of the caller":             {err: down, reason: streamerr.Draining, path: "shop"},
		"a connection that broke as if by one": {err: down, lost: true, reason: streamerr.PeerLost, path: "shop"},
		"the same while this server drains":    {err: down, lost: true, draining: true, reason: streamerr.Draining},
		"a reset while this server shuts down": {err: reset, draining: true, reason: streamerr.PeerReset, path: "shop"},
	} {
		t.Run(name, func(t *testing.T) {
			e := stopped(endedContext{kitextest.Context(t), test.err}, "shop", test.limit, test.draining, test.lost)
			if e.Reason != test.reason || e.Path.String() != test.path || !errors.Is(e, test.err) {
				t.Errorf("%v, not %s [%s]", e, test.reason, test.path)
			}
		})
	}
	if e := stopped(kitextest.Context(t), "shop", far, true, false); e != nil {
		t.Errorf("the context is live, but has the ending %v", e)
	}
}

func TestAShortDeadlineLeavesRoomForOtherEndings(t *testing.T) {
	for _, test := range []struct {
		left, total time.Duration
		want        bool
	}{
		{40 * time.Millisecond, 50 * time.Millisecond, false},
		{5 * time.Millisecond, 50 * time.Millisecond, true},
		{-time.Second, 50 * time.Millisecond, true},
		{90 * time.Millisecond, 10 * time.Second, true},
		{110 * time.Millisecond, 10 * time.Second, false},
	} {
		if got := expired(test.left, test.total); got != test.want {
			t.Errorf("%v before a deadline of %v: %v", test.left, test.total, got)
		}
	}
}
