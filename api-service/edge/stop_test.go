package edge_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// TestStopOfAnotherInstancesStreamCarriesABudget stops a stream that only chat-service knows. The
// stop must carry the grace that a call of this edge would give to chat-service, so that the stream
// ends within the grace of the edge, whichever instance was asked. Without keys nobody knows that the
// caller is the stream's client, so the message names its address.
func TestStopOfAnotherInstancesStreamCarriesABudget(t *testing.T) {
	url, chat := start(t, nil)
	id := "elsewhere"
	ctx, end, err := chat.hop.Begin(context.Background(), &id, "", "", func() *streamerr.Error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	if resp := ask(t, http.MethodDelete, url+"/v1/streams/"+id, ""); whole(t, resp) == "" || resp.StatusCode != http.StatusAccepted {
		t.Fatal(resp.Status)
	}
	stop := chat.stop.Load()
	if got := stop.GetGrace().AsDuration(); got <= 0 || got >= 250*time.Millisecond {
		t.Errorf("the stop gives chat-service %v of 250ms", got)
	}
	if got := streamerr.As(stream.Cause(ctx)); got.Reason != streamerr.UserStop || got.Path.String() != "client > api-service" || got.Message != "a request from 127.0.0.1 asked for the stream to stop" {
		t.Errorf("the stream was stopped with %v", got)
	}
}
