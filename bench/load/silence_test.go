package load

import (
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestSilenceCountsFromTheLastData: a stream may last longer than the silence timeout as long as
// data arrives.
func TestSilenceCountsFromTheLastData(t *testing.T) {
	for name, test := range map[string]struct {
		gap  time.Duration
		want bool
	}{"data comes": {silence - time.Second, true}, "silence": {silence + time.Second, false}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const tokens = 5
				client, server := net.Pipe()
				var engine sync.WaitGroup
				defer engine.Wait()
				engine.Go(func() {
					_, _ = server.Read(make([]byte, 4096))
					_, _ = fmt.Fprint(server, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
					for i := range tokens {
						time.Sleep(test.gap)
						if _, err := fmt.Fprintf(server, "data: {\"content\":\" %05d\"}\n\n", i); err != nil {
							return // the client has left
						}
					}
					_, _ = fmt.Fprint(server, "data: [DONE]\n\n")
					_ = server.Close()
				})
				r := NewRecorder()
				c := r.conn("engine", nil)
				c.net = client
				c.in.Reset(c)
				if got := c.stream(t.Context(), Request{Tokens: tokens, Prompt: "Hello."}, time.Now()); got != test.want {
					t.Errorf("completed: %t; errors: %v", got, r.Summary().Errors)
				}
			})
		})
	}
}
