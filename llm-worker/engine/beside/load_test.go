package beside_test

import (
	"net/http"
	"testing"

	"github.com/whence-dev/whence/llm-worker/engine/beside"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// TestDeadEngineIsALostPeer: vLLM's front end outlives its engine, and says so with a status or without one.
func TestDeadEngineIsALostPeer(t *testing.T) {
	for _, c := range []beside.Complaint{
		{Message: "EngineCore encountered an issue. See stack trace (above) for the root cause.", Status: http.StatusInternalServerError},
		{Message: "vllm.v1.engine.exceptions.EngineDeadError", Type: "InternalServerError"},
	} {
		if got := c.Ending(beside.InAnswer); got.Reason != streamerr.PeerLost || got.Path.String() != "engine" {
			t.Errorf("%+v: %v", c, got)
		}
	}
	alive := beside.Complaint{Message: "CUDA out of memory", Status: http.StatusInternalServerError}
	if got := alive.Ending(beside.InAnswer); got.Reason != streamerr.EngineFailed {
		t.Error(got)
	}
}
