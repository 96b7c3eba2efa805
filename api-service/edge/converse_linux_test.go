package edge_test

import (
	"testing"
	"time"

	"github.com/whence-dev/whence/api-service/edge"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// TestHalfOpenConversation: a ping is the data that the client's machine does not acknowledge.
func TestHalfOpenConversation(t *testing.T) {
	for when, script := range map[string]string{"in an answer": "start m say hi wait 1m", "between turns": "start m say hi end x"} {
		t.Run(when, func(t *testing.T) {
			var log logbook
			url, chat := startLogging(t, &log, func(c *edge.Config) { c.KeepAlive, c.ClientTimeout = 50*time.Millisecond, 300*time.Millisecond })
			c := converse(t, url, script)
			c.Until("delta")
			c.Deafen()
			if cause := streamerr.As(<-chat.causes); cause.Reason != streamerr.ClientGone || cause.Path.String() != "client > api-service" {
				t.Error(cause)
			}
			log.line(t, "stream ended", "hop=api-service", "reason=client_gone", "has not answered")
		})
	}
}
