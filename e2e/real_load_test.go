package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/polltest"
)

// The claims of features that a server need not have.
var (
	cached = &claim{"`cached_tokens` is the server's", playCached}
	loaded = &claim{"the load that the worker shows: streams, and the size of the KV cache", playLoad}
	left   = &claim{"tokens that the server makes for a stream that its client has left", playLeft}
)

// playCached asks for a prompt that the server has read before.
func playCached(t *testing.T, s *realServer) string {
	w := s.whence()
	prompt := w.rendered(t, strings.Repeat("What happens when I close the tab? ", 20)+time.Now().String())
	got, want := w.complete(t, texted(prompt)), s.own(t, texted(prompt)) // which chat-service has rendered for a first answer
	switch {
	case !got.said && !want.said:
		return "absent: the server does not say"
	case got.said != want.said || got.cached != want.cached || got.cached == 0:
		t.Errorf("%d tokens are cached (%t), the server says %d (%t)", got.cached, got.said, want.cached, want.said)
	}
	return exact
}

// playLoad compares the load that the worker reports with the server's own, with streams and without.
func playLoad(t *testing.T, s *realServer) string {
	w := s.whence()
	w.probedIdle(t)
	var all []*live
	for range 3 {
		all = append(all, w.open(t, greedy(long, "ignore_eos", true)).begun(t))
	}
	w.busy(t, 3, 0)
	if s.running != nil {
		polltest.Eventually(t, "the server runs the streams", func() bool { return s.running(t) == 3 })
	}
	for _, l := range all {
		l.close()
	}
	w.idle(t)
	if s.tokens == nil {
		return "streams " + exact
	}
	info, err := w.client.Info(t.Context(), &workerv1.InfoRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := info.GetLoad().GetKvTotalTokens(), s.tokens(t); got != want {
		t.Errorf("the KV cache has %d tokens, the server says %d", got, want)
	}
	return exact
}

// playLeft counts the tokens that the server has generated for streams beyond those that their clients have
// read.
func playLeft(t *testing.T, s *realServer) string {
	if s.generated == nil {
		return "not counted by the server"
	}
	w := s.whence()
	const streams = 5
	most := 0
	for range streams {
		before := s.generated(t)
		l := w.open(t, greedy(long, "ignore_eos", true)).begun(t)
		l.close()
		w.clientGone(t, l.id)
		w.probedIdle(t)
		polltest.Eventually(t, "the worker has reported its story", func() bool { return w.why(t, l.id).State == "ended" })
		most = max(most, s.generated(t)-before-int(w.why(t, l.id).Tokens.Delivered))
	}
	if most > 200 {
		t.Errorf("%d tokens", most)
	}
	return fmt.Sprintf("at most %d in %d streams", most, streams)
}
