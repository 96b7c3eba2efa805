package connection_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudwego/hertz/pkg/app"

	"github.com/whence-dev/whence/api-service/connection"
)

func TestRequestsAreAnsweredInTurn(t *testing.T) {
	for _, piece := range []int{1, 7, 1 << 20} {
		play(t, func(t *testing.T, s *stand) {
			chunked := "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3;a=b\r\nabc\r\n1\r\nd\r\n0\r\nT: v\r\n\r\n"
			text := asking("/echo", "one") + "\r\n" + chunked + get + strings.Replace(get, " /", " /none", 1) + asking("/refuse", "unread") + get
			go func() {
				for i := 0; i < len(text); i += piece {
					s.say(t, text[i:min(len(text), i+piece)])
					time.Sleep(time.Millisecond)
				}
			}()
			s.wants(t, http.StatusOK, "one")
			s.wants(t, http.StatusOK, "abcd")
			s.wants(t, http.StatusOK, "")
			s.wants(t, http.StatusNotFound, "Not Found")
			s.wants(t, http.StatusForbidden, "no")
			s.wants(t, http.StatusOK, "")
		})
	}
}

func TestSilentClientsAreClosed(t *testing.T) {
	play(t, func(t *testing.T, s *stand) { s.ends(t, arrival, io.EOF) })
	play(t, func(t *testing.T, s *stand) {
		s.say(t, get)
		s.wants(t, http.StatusOK, "")
		s.ends(t, idle, io.EOF)
	})
}

// TestTheIdleTimeIsNotExtendedByEmptyLines: a client may send empty lines between requests, but they are
// none.
func TestTheIdleTimeIsNotExtendedByEmptyLines(t *testing.T) {
	play(t, func(t *testing.T, s *stand) {
		go func() {
			for s.client.Offer([]byte("\r\n")) > 0 {
				time.Sleep(time.Second)
			}
		}()
		s.ends(t, arrival, io.EOF)
	})
}

// TestRequestsMustArriveInTime: header and body together, however busy the client is.
func TestRequestsMustArriveInTime(t *testing.T) {
	for name, c := range map[string]struct{ first, more string }{
		"header": {"GET /echo HTTP/1.1\r\nHost: x\r\nX: ", "x"},
		"length": {"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 9000\r\n\r\n", "x"},
		"chunks": {"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", "1\r\nx\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(t *testing.T, s *stand) {
				begun := time.Now()
				s.say(t, c.first)
				go func() {
					for s.client.Offer([]byte(c.more)) > 0 {
						time.Sleep(time.Second)
					}
				}()
				status, _, closes := s.hear(t)
				if took := time.Since(begun); status != http.StatusRequestTimeout || !closes || took < arrival || took > arrival+arrival/8 {
					t.Errorf("%d after %v, closes: %v", status, took, closes)
				}
			})
		})
	}
}

// TestALongAnswerIsNotLate: the bound for a request's arrival does not bound its answer.
func TestALongAnswerIsNotLate(t *testing.T) {
	play(t, func(t *testing.T, s *stand) {
		s.say(t, asking("/take", ""))
		x := <-s.taken
		time.Sleep(time.Hour)
		if n, err := x.Send([]byte("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")); n == 0 || err != nil {
			t.Fatal(n, err)
		}
		x.Free(false)
		s.wants(t, http.StatusOK, "hi")
		s.say(t, get)
		s.wants(t, http.StatusOK, "")
	})
}

// TestFloodsAreRefused sends each part of a request without end. The server takes a bounded number of
// bytes, answers, and closes the connection.
func TestFloodsAreRefused(t *testing.T) {
	const chunks = "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
	for name, c := range map[string]struct {
		first, more string
		status      int
	}{
		"a method":                {"", "A", http.StatusRequestHeaderFieldsTooLarge},
		"a path":                  {"GET /", "x", http.StatusRequestHeaderFieldsTooLarge},
		"a field":                 {"GET /echo HTTP/1.1\r\nHost: x\r\nX: ", "x", http.StatusRequestHeaderFieldsTooLarge},
		"fields":                  {"GET /echo HTTP/1.1\r\nHost: x\r\n", "X: y\r\n", http.StatusRequestHeaderFieldsTooLarge},
		"a chunk's size":          {chunks, "0", http.StatusBadRequest},
		"an extension":            {chunks + "1;", "x", http.StatusBadRequest},
		"chunks with extensions":  {chunks, "1;" + strings.Repeat("e", 100) + "\r\nx\r\n", http.StatusBadRequest},
		"a trailer":               {chunks + "0\r\nX: ", "x", http.StatusBadRequest},
		"trailers":                {chunks + "0\r\n", "X: y\r\n", http.StatusBadRequest},
		"a body that is refused":  {strings.Replace(chunks, "/echo", "/refuse", 1), "1000\r\n" + strings.Repeat("x", 0x1000) + "\r\n", http.StatusForbidden},
		"chunks that are refused": {strings.Replace(chunks, "/echo", "/refuse", 1), "1\r\nx\r\n", http.StatusForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(t *testing.T, s *stand) {
				s.say(t, c.first)
				answered := make(chan int)
				go func() {
					status, _, _ := s.hear(t)
					answered <- status
				}()
				sent := 0
				for piece := []byte(strings.Repeat(c.more, 4<<10/len(c.more)+1)); ; sent += len(piece) {
					if _, err := s.client.Write(piece); err != nil {
						break
					}
					if sent > 8<<20 {
						t.Fatalf("the server has taken %d bytes", sent)
					}
					time.Sleep(time.Millisecond)
				}
				if status := <-answered; status != c.status {
					t.Errorf("the status is %d, want %d", status, c.status)
				}
			})
		})
	}
}

// TestAnUnreadBodyStaysWithTheClient: a handler that reads nothing makes the client wait, and the client's
// departure ends its wait for the body.
func TestAnUnreadBodyStaysWithTheClient(t *testing.T) {
	play(t, func(t *testing.T, s *stand) {
		release := make(chan struct{})
		s.server.Engine.POST("/wait", func(ctx context.Context, c *app.RequestContext) {
			<-release
			s.echo(ctx, c)
		})
		s.say(t, "POST /wait HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n")
		sent := 0
		for more := true; more; synctest.Wait() {
			n := s.client.Offer(make([]byte, 10000))
			sent += n
			more = n > 0
		}
		if sent > 3*window {
			t.Errorf("%d bytes were taken", sent)
		}
		s.client.CloseWrite()
		close(release)
		if got := <-s.bodies; got != io.ErrUnexpectedEOF.Error() {
			t.Errorf("the handler has read %.100q", got)
		}
	})
}

// TestClientsThatAreTooFarAheadAreCutOff: so that their departure is noticed.
func TestClientsThatAreTooFarAheadAreCutOff(t *testing.T) {
	play(t, func(t *testing.T, s *stand) {
		s.say(t, asking("/take", ""))
		x := <-s.taken
		sent := 0
		for err := error(nil); err == nil && sent < 10*connection.MaxAhead; {
			var n int
			n, err = s.client.Write(make([]byte, 10000))
			sent += n
			synctest.Wait()
		}
		if sent < connection.MaxAhead || sent > 2*connection.MaxAhead {
			t.Errorf("the client could send %d bytes", sent)
		}
		<-s.left
		if _, err := x.Send([]byte("late")); err == nil {
			t.Error("a client that was cut off is written to")
		}
	})
}

// TestDeparturesAreNoticed: at once, also behind bytes that nobody reads.
func TestDeparturesAreNoticed(t *testing.T) {
	for name, leave := range map[string]func(*testing.T, *stand){
		"a close":                  func(_ *testing.T, s *stand) { s.client.CloseWrite() },
		"a reset":                  func(_ *testing.T, s *stand) { s.client.Reset() },
		"a stray byte and a close": func(t *testing.T, s *stand) { s.say(t, "\r"); s.client.CloseWrite() },
		"a request and a close":    func(t *testing.T, s *stand) { s.say(t, get); s.client.CloseWrite() },
		"many bytes and a close": func(t *testing.T, s *stand) {
			s.say(t, strings.Repeat("x", connection.MaxAhead))
			s.client.CloseWrite()
		},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(t *testing.T, s *stand) {
				s.say(t, asking("/take", ""))
				x := <-s.taken
				begun := time.Now()
				leave(t, s)
				<-s.left
				if took := time.Since(begun); took != 0 {
					t.Errorf("it takes %v", took)
				}
				x.Free(false)
				<-s.over
				if n := len(s.bodies); n != 0 {
					t.Errorf("%d requests are served after the client has left", n)
				}
			})
		})
	}
}

// TestAHalfClosedClientIsAnswered: a client may end what it sends and wait for the answer.
func TestAHalfClosedClientIsAnswered(t *testing.T) {
	play(t, func(t *testing.T, s *stand) {
		s.say(t, asking("/echo", "last"))
		s.client.CloseWrite()
		s.wants(t, http.StatusOK, "last")
		s.ends(t, 0, io.EOF)
	})
}

// TestAClientThatReadsNothingIsReset: an answer in one piece waits for its client for a bounded time.
func TestAClientThatReadsNothingIsReset(t *testing.T) {
	play(t, func(t *testing.T, s *stand) {
		s.say(t, strings.Replace(get, "/echo", "/large", 1))
		begun := time.Now()
		<-s.over
		if took := time.Since(begun); took < write || took > write+write/8 {
			t.Errorf("the server waits for %v", took)
		}
		if _, err := s.in.ReadByte(); !errors.Is(err, syscall.ECONNRESET) {
			t.Error(err)
		}
	})
	play(t, func(t *testing.T, s *stand) { // but as long as it reads
		s.say(t, strings.Replace(get, "/echo", "/large", 1))
		n := 0
		for buf := make([]byte, 64<<10); n < 1<<20; time.Sleep(write / 2) {
			m, err := s.in.Read(buf)
			if n += m; err != nil {
				t.Fatal(n, err)
			}
		}
	})
}

// TestRoomIsReported: Send takes what fits, and room is called when more fits.
func TestRoomIsReported(t *testing.T) {
	play(t, func(t *testing.T, s *stand) {
		s.say(t, asking("/take", ""))
		x := <-s.taken
		out := []byte("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + strings.Repeat("x", 1000000))
		go func() {
			for len(out) > 0 {
				n, err := x.Send(out)
				if out = out[n:]; err != nil {
					t.Error(err)
					return
				}
				if len(out) > 0 {
					if m, err := x.Send(out); m != 0 || err != nil {
						t.Errorf("%d more bytes are taken, %v", m, err)
					}
					<-s.room
				}
			}
			x.Free(false)
		}()
		time.Sleep(time.Second)
		synctest.Wait()
		if len(out) == 0 {
			t.Error("everything was taken")
		}
		s.wants(t, http.StatusOK, strings.Repeat("x", 1000000))
		s.say(t, get)
		s.wants(t, http.StatusOK, "")
	})
}

// TestEndsOfExchanges: after Free the next request is answered, after Cut the client can read what was
// sent, and Reset drops it.
func TestEndsOfExchanges(t *testing.T) {
	const part = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n"
	for name, c := range map[string]struct {
		end  func(connection.Exchange)
		read int
		want error
	}{
		"Free, last": {func(x connection.Exchange) { x.Free(true) }, len(part), io.EOF},
		"Cut":        {func(x connection.Exchange) { x.Cut(); x.Free(false) }, len(part), io.ErrUnexpectedEOF}, // over TLS
		"Reset":      {func(x connection.Exchange) { x.Reset(); x.Cut(); x.Free(false) }, 0, syscall.ECONNRESET},
	} {
		t.Run(name, func(t *testing.T) {
			for _, ahead := range []string{"", "GET", get} { // bytes that nobody reads must not reset the connection
				play(t, func(t *testing.T, s *stand) {
					s.say(t, asking("/take", ""))
					x := <-s.taken
					s.say(t, ahead)
					synctest.Wait()
					if _, err := x.Send([]byte(part)); err != nil {
						t.Fatal(err)
					}
					c.end(x)
					if _, err := x.Send([]byte("more")); err == nil {
						t.Error("an exchange that has ended takes bytes")
					}
					if got, err := io.ReadAll(s.in); len(got) != c.read || !errors.Is(err, c.want) && err != nil {
						t.Errorf("the client has %q, %v", got, err)
					}
				})
			}
		})
	}
}

// TestABodyIsAskedForWhenItIsRead: a client that waits for 100 Continue gets it when a handler reads the
// body, and not if the request is refused.
func TestABodyIsAskedForWhenItIsRead(t *testing.T) {
	const head = "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n"
	play(t, func(t *testing.T, s *stand) {
		s.say(t, fmt.Sprintf(head, "/echo"))
		s.wants(t, http.StatusContinue, "")
		s.say(t, "hi")
		s.wants(t, http.StatusOK, "hi")
		s.say(t, fmt.Sprintf(head, "/refuse"))
		if status, _, closes := s.hear(t); status != http.StatusForbidden || !closes {
			t.Error(status, closes)
		}
		s.ends(t, 0, io.EOF)
	})
}

// TestARefusedClientReadsTheRefusal: the rest of its request is dropped for a while, and no longer.
func TestARefusedClientReadsTheRefusal(t *testing.T) {
	play(t, func(t *testing.T, s *stand) {
		s.say(t, "POST /refuse HTTP/1.1\r\nHost: x\r\nContent-Length: 10000000\r\n\r\n")
		if n, err := s.client.Write(make([]byte, 5000000)); err != nil {
			t.Error(n, err)
		}
		s.wants(t, http.StatusForbidden, "no")
		s.ends(t, 0, io.EOF)
		begun := time.Now()
		<-s.over
		if took := time.Since(begun); took > 2*time.Second {
			t.Errorf("the server drops bytes for %v", took)
		}
	})
}

// TestAnUpgradedConnectionCarriesBytes: with what had arrived before, until the client ends them.
func TestAnUpgradedConnectionCarriesBytes(t *testing.T) {
	play(t, func(t *testing.T, s *stand) {
		s.say(t, asking("/take", "")+"early")
		x := <-s.taken
		next := x.Upgrade()
		time.Sleep(10 * arrival) // it may be silent
		go func() {
			s.say(t, strings.Repeat("x", 1000000))
			s.client.CloseWrite()
		}()
		var got int
		for {
			b, err := next()
			if got += len(b); err != nil {
				if !errors.Is(err, io.EOF) || got != len("early")+1000000 {
					t.Error(got, err)
				}
				break
			}
			time.Sleep(time.Millisecond) // the client waits meanwhile
		}
		x.Free(true)
		<-s.over
	})
}
