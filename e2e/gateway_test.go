package e2e

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
)

// TestGatewayHasBothHops: api-service and chat-service in one process remain two hops in the log,
// the story and the metrics, for a client of either service. Each series is exposed once.
func TestGatewayHasBothHops(t *testing.T) {
	t.Parallel()
	w := run(t, inGateway, flags{all: measured, worker: []string{"--pace", "40"}})
	want := w.answer(t, greedy(short))
	if got := generate(t, chatv1.NewChatClient(dialGRPC(t, w.chat)), chatRequest(short)); got != want {
		t.Errorf("a gRPC caller gets %q, an HTTP client %q", got, want)
	}
	running := w.open(t, greedy(long)).begun(t)
	running.close()
	w.clientGone(t, running.id)
	var story struct {
		Hops []struct{ Hop, Reason string }
	}
	if err := json.Unmarshal(w.get(t, "/v1/streams/"+running.id).body, &story); err != nil {
		t.Fatal(err)
	}
	var told []string
	for _, h := range story.Hops {
		told = append(told, h.Hop)
		if h.Reason != "client_gone" {
			t.Errorf("%s has the reason %s", h.Hop, h.Reason)
		}
	}
	if !slices.Equal(told, hops) {
		t.Errorf("the story has the hops %v, want %v", told, hops)
	}
	s := w.processes[apiService].scrape(t)
	for hop, completed := range map[string]float64{apiService: 1, chatService: 2} {
		if n := s.Sum("whence_stream_endings_total", "hop="+hop, "reason=completed"); n != completed {
			t.Errorf("%s has %v completed streams, want %v", hop, n, completed)
		}
		if n := s.Sum("whence_stream_endings_total", "hop="+hop, "reason=client_gone"); n != 1 {
			t.Errorf("%s has %v streams whose client has gone, want 1", hop, n)
		}
	}
	seen := map[string]bool{}
	for line := range strings.Lines(s.Text) {
		series, _, _ := strings.Cut(line, " ")
		if !strings.HasPrefix(line, "#") && seen[series] {
			t.Errorf("%s is exposed twice", series)
		}
		seen[series] = true
	}
}
