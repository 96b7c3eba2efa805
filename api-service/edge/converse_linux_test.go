package edge_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/whence-dev/whence/api-service/edge"
	"github.com/whence-dev/whence/internal/logtest"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// TestHalfOpenConversationIsFoundByTCP covers a conversation without pings whose client's machine
// does not acknowledge the answer.
func TestHalfOpenConversationIsFoundByTCP(t *testing.T) {
	var log logtest.Log
	url, chat := startLogging(t, &log, func(c *edge.Config) { c.KeepAlive, c.ClientTimeout, c.MaxBody = 0, 300*time.Millisecond, 1<<20 })
	c := converse(t, url, "start m say hi"+strings.Repeat(" wait 100ms say lost", 600))
	c.Until("delta")
	c.Deafen()
	if cause := streamerr.As(<-chat.causes); cause.Reason != streamerr.ClientGone || cause.Path.String() != "client > api-service" {
		t.Error(cause)
	}
	log.Await(t, "stream ended", "hop=api-service", "reason=client_gone", "the client's machine has not answered for 300ms")
}

// TestHalfOpenConversationIsFoundByPings: between turns TCP alone notices nothing, because there is
// no data to acknowledge. A ping is neither acknowledged by the client's machine nor answered by
// its program; the stream ends as soon as either is noticed.
// TestClientThatDoesNotAnswerPingsHasGone checks that a missing pong is enough: there the client's
// machine acknowledges everything.
func TestHalfOpenConversationIsFoundByPings(t *testing.T) {
	var log logtest.Log
	url, chat := startLogging(t, &log, func(c *edge.Config) { c.KeepAlive, c.ClientTimeout = 50*time.Millisecond, 300*time.Millisecond })
	c := converse(t, url, "start m say hi end x")
	c.Until("turn_end")
	c.Deafen()
	if cause := streamerr.As(<-chat.causes); cause.Reason != streamerr.ClientGone || cause.Path.String() != "client > api-service" {
		t.Error(cause)
	}
	log.Await(t, "stream ended", "hop=api-service", "reason=client_gone", "has not answered")
}

// TestConversationOverTLSThatIsNotRead checks that the front resets the client when the edge has
// given it up.
func TestConversationOverTLSThatIsNotRead(t *testing.T) {
	cert, key, roots := writeCertificate(t)
	plain, chat := start(t, func(c *edge.Config) {
		c.TLS.Cert, c.TLS.Key = cert, key
		c.WriteTimeout, c.ClientTimeout, c.MaxUnsent = time.Hour, time.Hour, 4096
	})
	url := strings.Replace(plain, "http:", "https:", 1)
	c := converseTLS(t, url, "talk", "start m flood x", roots)
	c.Until("delta")
	operator := secureClient(t, roots, false, &atomic.Bool{})
	before, same := "", 0
	for begun := time.Now(); same < 3; time.Sleep(50 * time.Millisecond) { // a blocked write gives no signal
		_, tokens, _ := strings.Cut(send(t, operator, "GET", url+"/v1/streams/talk"), `"tokens":`)
		tokens, _, _ = strings.Cut(tokens, "}")
		if same++; tokens != before || tokens == "" {
			before, same = tokens, 0
		}
		if time.Since(begun) > 20*time.Second {
			t.Fatal("the edge does not stop writing")
		}
	}
	send(t, operator, "DELETE", url+"/v1/streams/talk")
	if cause := streamerr.As(<-chat.causes); cause.Reason != streamerr.UserStop {
		t.Error(cause)
	}
	for begun := time.Now(); !c.WasReset(); time.Sleep(5 * time.Millisecond) {
		if time.Since(begun) > 20*time.Second {
			t.Fatal("the front keeps the connection")
		}
	}
}
