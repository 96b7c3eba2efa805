package e2e

import (
	"fmt"
	"testing"

	"github.com/whence-dev/whence/lab"
)

// A record is one line of a service's log.
type record = lab.Record

// ended returns what a hop logged about the end of a stream.
func (w *whence) ended(t *testing.T, hop, stream string) record {
	t.Helper()
	return w.processes[lab.ServiceOf(hop)].logged(t, fmt.Sprintf("how stream %s ended on %s", stream, hop), func(r record) bool {
		return r.Msg == "stream ended" && r.Stream == stream && r.Hop == hop
	})
}

// hops lists all hops in the order of requests.
var hops = []string{"api-service", "chat-service", "llm-worker/0"}

// clientGone checks that every hop logged that the client left, with the path of the ending.
func (w *whence) clientGone(t *testing.T, stream string) {
	t.Helper()
	path := "client"
	for _, hop := range hops {
		path += " > " + hop
		got := w.ended(t, hop, stream)
		if got.Reason != "client_gone" || got.Origin != "client" || got.Path != path {
			t.Errorf("%s logged reason %s, origin %s, path %q; want client_gone, client, %q", hop, got.Reason, got.Origin, got.Path, path)
		}
	}
}
