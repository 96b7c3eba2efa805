package edge_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/whence-dev/whence/api-service/edge"
	"github.com/whence-dev/whence/internal/logtest"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// TestHalfOpenConversationIsFoundByTCP covers a conversation without pings whose client's machine
// does not acknowledge the answer.
func TestHalfOpenConversationIsFoundByTCP(t *testing.T) {
	t.Parallel()
	var log logtest.Log
	url, chat := startLogging(t, &log, func(c *edge.Config) { c.KeepAlive, c.ClientTimeout, c.MaxBody = 0, 300*time.Millisecond, 1<<20 })
	c := converse(t, url, "start m say hi"+strings.Repeat(" wait 100ms say lost", 600))
	c.Until("delta")
	c.Deafen()
	if cause := streamerr.As(polltest.Receive(t, "the cause of the stop", chat.causes)); cause.Reason != streamerr.ClientGone || cause.Path.String() != "client > api-service" {
		t.Error(cause)
	}
	log.Await(t, "stream ended", "hop=api-service", "reason=client_gone", "the client's machine has not answered for 300ms")
}

// TestConversationOverTLSThatIsNotRead checks that a client that was given up is reset.
func TestConversationOverTLSThatIsNotRead(t *testing.T) {
	t.Parallel()
	cert, key, roots := writeCertificate(t)
	plain, chat := start(t, func(c *edge.Config) {
		c.TLS.Cert, c.TLS.Key = cert, key
		c.WriteTimeout, c.ClientTimeout, c.MaxUnsent = time.Hour, time.Hour, 4096
	})
	url := strings.Replace(plain, "http:", "https:", 1)
	c := converseTLS(t, url, "talk", "start m flood x", roots)
	c.Until("delta")
	operator := secureClient(t, roots, false, &atomic.Bool{})
	awaitBlockedWrite(t, func() string { return send(t, operator, "GET", url+"/v1/streams/talk") })
	send(t, operator, "DELETE", url+"/v1/streams/talk")
	if cause := streamerr.As(polltest.Receive(t, "the cause of the stop", chat.causes)); cause.Reason != streamerr.UserStop {
		t.Error(cause)
	}
	polltest.Eventually(t, "the edge resets the connection", c.WasReset)
}
