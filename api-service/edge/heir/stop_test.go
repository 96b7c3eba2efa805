package heir_test

import (
	"testing"

	"github.com/whence-dev/whence/api-service/edge/heir"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func TestCauseOfAStopDoesNotNameTheHopThatWillAddItself(t *testing.T) {
	for path, want := range map[string]string{"client > api-b": "client", "client > api-c": "client > api-c", "api-b": "", "": ""} {
		cause := &streamerr.Error{Reason: streamerr.UserStop, Path: streamerr.ParsePath(path), Message: "stop"}
		if got := heir.StopCause("api-b", string(cause.JSON())); got.Reason != streamerr.UserStop || got.Path.String() != want {
			t.Errorf("%q: %v with the path %q, want %q", path, got, got.Path, want)
		}
	}
	if got := heir.StopCause("api-b", "no JSON"); got.Reason != streamerr.UserStop {
		t.Error(got)
	}
}
