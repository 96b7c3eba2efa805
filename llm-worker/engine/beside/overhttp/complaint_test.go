package overhttp

import (
	"testing"

	"github.com/whence-dev/whence/llm-worker/engine/beside"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// TestEndingOfAnotherWhenceKeepsItsReasonAndPath: the errors are those that api-service sends.
func TestEndingOfAnotherWhenceKeepsItsReasonAndPath(t *testing.T) {
	path := streamerr.NewPath("engine", "llm-worker/0", "chat-service", "api-service")
	for _, test := range []struct {
		told     streamerr.Reason
		status   int // 0 for an error in the answer
		want     streamerr.Reason
		retrying bool
	}{
		{streamerr.PeerLost, 0, streamerr.PeerLost, false},
		{streamerr.PeerLost, 502, streamerr.PeerLost, false},
		{streamerr.OperatorStop, 503, streamerr.OperatorStop, false},
		{streamerr.UserStop, 409, streamerr.UserStop, false},
		{streamerr.Deadline, 0, streamerr.Deadline, false},
		{streamerr.Invalid, 400, streamerr.Invalid, false},
		{streamerr.Overloaded, 429, streamerr.Overloaded, true},
		{streamerr.EngineFailed, 0, streamerr.EngineFailed, false},
		// These are about the caller of the other Whence, or about its instance.
		{streamerr.Draining, 503, streamerr.Unavailable, true},
		{streamerr.ClientGone, 0, streamerr.EngineFailed, false},
		{streamerr.Completed, 500, streamerr.EngineFailed, false},
		{streamerr.Forbidden, 400, streamerr.Invalid, false},
	} {
		sent := streamerr.New(test.told, "because")
		sent.Path = path
		c := ReadComplaint(sent.JSON())
		if test.status != 0 {
			c.Status = test.status
		}
		got := c.Ending(beside.InAnswer)
		if got.Reason != test.want || got.Path.String() != "engine > llm-worker/0 > chat-service > api-service > engine" || got.RetryAfter > 0 != test.retrying {
			t.Errorf("%s with status %d: %s, %v, path %s", test.told, test.status, got.Reason, got, got.Path)
		}
	}
	// A key that the other Whence refuses is this worker's, and a path from elsewhere is cleaned.
	refused := streamerr.New(streamerr.Unauthenticated, "no such key")
	refused.Path = path
	c := ReadComplaint(refused.JSON())
	c.Status = 401
	if got := c.Ending("answered"); got.Reason != streamerr.EngineFailed || got.Path.String() != "engine" {
		t.Error(got, got.Path)
	}
	c = ReadComplaint([]byte(`{"error":{"message":"x","code":400,"whence":{"reason":"no_such_reason","path":["a>b\n",""]}}}`))
	if got := c.Ending("answered"); got.Reason != streamerr.Invalid || got.Path.String() != "ab > engine" {
		t.Error(got, got.Path)
	}
	if got := ReadComplaint([]byte(`{"error":{"message":"x","whence":7,"code":400}}`)).Ending("answered"); got.Path.String() != "engine" {
		t.Error(got, got.Path)
	}
}
