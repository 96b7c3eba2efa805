package e2e

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"
)

// A record is one line of a service's log.
type record struct {
	Time time.Time `json:"time"`
	Msg  string    `json:"msg"`
	Addr string    `json:"addr"`
	Err  string    `json:"err"`

	// Of "stream ended".
	Stream  string `json:"stream"`
	Hop     string `json:"hop"`
	Reason  string `json:"reason"`
	Origin  string `json:"origin"`
	Path    string `json:"path"`
	Message string `json:"message"`
	Trace   string `json:"trace"`
	Extent  string `json:"extent"`

	// Of "streams go over links".
	Target string `json:"target"`

	// Of "worker is healthy", and of "stream moved".
	Worker string `json:"worker"`
	From   string `json:"from"`
	To     string `json:"to"`

	// Of "draining".
	Streams int       `json:"streams"`
	Until   time.Time `json:"until"`
}

// logged waits for the first record that match accepts.
func (p *process) logged(t *testing.T, what string, match func(record) bool) record {
	t.Helper()
	var r record
	p.await(t, p.logs, what, func(line string) bool {
		r = record{}
		return json.Unmarshal([]byte(line), &r) == nil && match(r)
	})
	return r
}

// listening returns the address that the process has chosen.
func (p *process) listening(t *testing.T) string {
	t.Helper()
	return p.logged(t, `"listening" in its log`, func(r record) bool { return r.Msg == "listening" }).Addr
}

// ended returns what a hop logged about the end of a stream.
func (w *whence) ended(t *testing.T, hop, stream string) record {
	t.Helper()
	return w.processes[serviceOf(hop)].logged(t, fmt.Sprintf("how stream %s ended on %s", stream, hop), func(r record) bool {
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
