package redisclient_test

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/whence-dev/whence/api-service/redisclient"
	"github.com/whence-dev/whence/internal/leaktest"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/internal/redistest"
)

func TestMain(m *testing.M) {
	redisclient.LogTo(io.Discard)
	leaktest.Main(m)
}

const maxBytes = 1 << 20

// connect returns a client of a server. Its timeout is long, so that a reply is refused before it.
func connect(t testing.TB, addr string, messages bool, log slog.Handler) *redis.Client {
	t.Helper()
	c := redisclient.Config{URL: "redis://" + addr, Timeout: polltest.Patience, Messages: messages, Log: slog.New(log)}
	if !messages {
		c.MaxBytes = maxBytes
	}
	o, err := redisclient.Options(c)
	if err != nil {
		t.Fatal(err)
	}
	db := redis.NewClient(o)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// hostile has replies that no server of ours gives to any call. Each of them has ended a process
// without the checks, or has cost it memory as long as it came.
var hostile = map[string]string{
	"a string without end":              "$999999999999\r\n",
	"a string of more than all replies": "$1048577\r\n",
	"a string with a negative length":   "$-7\r\n",
	"an array without end":              "*999999999\r\n",
	"an array of endless length":        "*" + strings.Repeat("9", 100) + "\r\n",
	"a map without end":                 "%999999999\r\n",
	"a set without end":                 "~999999999\r\n",
	"deep nesting":                      strings.Repeat("*1\r\n", 1000),
	"an endless line":                   "+" + strings.Repeat("a", 1<<20),
	"an endless error":                  "-" + strings.Repeat("a", 1<<20),
	"an endless number":                 ":" + strings.Repeat("1", 1<<20),
	"an array as a key":                 "%1\r\n*0\r\n:1\r\n",
	"a map as a key":                    "%1\r\n%0\r\n:1\r\n",
	"attributes":                        strings.Repeat("|1\r\n+a\r\n+b\r\n", 1000),
	"an attribute without end":          "|999999999\r\n",
	"a push":                            ">2\r\n$4\r\npong\r\n$0\r\n\r\n",
	"a push in an array":                "*1\r\n>2\r\n$4\r\npong\r\n$0\r\n\r\n",
	"a big number":                      "(" + strings.Repeat("9", 1000) + "\r\n",
	"a streamed string":                 "$?\r\n",
	"a text that is too long":           "$1\r\nabc\r\n",
	"a line without its end":            "+OK\n",
	"an unknown type":                   "HTTP/1.1 400 Bad Request\r\n\r\n",
	"two replies":                       "+OK\r\n+OK\r\n",
}

// messages has what breaks the rules of a connection that has subscribed.
var messages = map[string]string{
	"an integer":                      ":1\r\n",
	"nothing":                         "_\r\n",
	"nothing as in RESP2":             "$-1\r\n",
	"no array as in RESP2":            "*-1\r\n",
	"a string":                        "$3\r\nabc\r\n",
	"a map":                           "%1\r\n+a\r\n+b\r\n",
	"an empty push":                   ">0\r\n",
	"a push of one part":              ">1\r\n$7\r\nmessage\r\n",
	"a push of many parts":            ">4\r\n$7\r\nmessage\r\n+a\r\n+b\r\n+c\r\n",
	"a kind that is a number":         ">3\r\n:1\r\n+a\r\n+b\r\n",
	"a kind that is an error":         ">3\r\n-ERR\r\n+a\r\n+b\r\n",
	"a kind that is nothing":          ">3\r\n_\r\n+a\r\n+b\r\n",
	"an unknown kind":                 ">3\r\n$8\r\npmessage\r\n+a\r\n+b\r\n",
	"a kind with a longer name":       ">3\r\n$20\r\nmessagemessagemessag\r\n+a\r\n+b\r\n",
	"a channel that is a number":      ">3\r\n$7\r\nmessage\r\n:1\r\n+b\r\n",
	"a channel that is nothing":       ">3\r\n$7\r\nmessage\r\n$-1\r\n+b\r\n",
	"a payload that is a number":      ">3\r\n$7\r\nmessage\r\n+c\r\n:1\r\n",
	"a payload of arrays":             ">3\r\n$7\r\nmessage\r\n+c\r\n*1\r\n:1\r\n",
	"a payload that is an error":      ">3\r\n$7\r\nmessage\r\n+c\r\n-ERR\r\n",
	"a count that is a text":          ">3\r\n$9\r\nsubscribe\r\n+c\r\n+1\r\n",
	"a count that is nothing":         "*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n$-1\r\n",
	"a pong that is an array":         ">2\r\n$4\r\npong\r\n*0\r\n",
	"a message of more than 4 KiB":    ">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$5000\r\n",
	"a message without end, in lines": ">3\r\n$7\r\nmessage\r\n+c\r\n+" + strings.Repeat("a", 5000) + "\r\n",
}

const (
	subscribed = ">3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n"
	told       = ">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$2\r\nok\r\n"
)

// TestWrongRepliesOfPubSubEndOnlyTheirConnection: the library panics on most of them, in a
// goroutine of its own.
func TestWrongRepliesOfPubSubEndOnlyTheirConnection(t *testing.T) {
	t.Parallel()
	all := map[string]string{}
	for name, reply := range hostile {
		if name != "a push" && name != "two replies" { // a push is what a subscriber gets
			all[name] = reply
		}
	}
	for name, reply := range messages {
		all[name] = reply
	}
	for name, reply := range all {
		for _, before := range []string{"", subscribed} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				var subscribers atomic.Int64
				addr := redistest.Fake(t, func(command []string) string {
					switch {
					case command[0] == "hello":
						return redistest.Greeting
					case command[0] == "subscribe" && subscribers.Add(1) == 1:
						return before + reply
					case command[0] == "subscribe":
						return subscribed + told
					default:
						return "+PONG\r\n"
					}
				})
				sub := connect(t, addr, true, slog.DiscardHandler).Subscribe(t.Context(), "c")
				defer sub.Close()
				if got := <-sub.Channel(); got == nil || got.Payload != "ok" { // after a new connection
					t.Errorf("got %v", got)
				}
			})
		}
	}
}

// TestWrongRepliesToPingEndOnlyTheirConnection: PubSub sends it before the first subscription.
func TestWrongRepliesToPingEndOnlyTheirConnection(t *testing.T) {
	t.Parallel()
	for name, reply := range messages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addr := redistest.Fake(t, func(command []string) string {
				if command[0] == "hello" {
					return redistest.Greeting
				}
				return reply
			})
			sub := connect(t, addr, true, slog.DiscardHandler).Subscribe(t.Context())
			defer sub.Close()
			if err := sub.Ping(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, err := sub.Receive(t.Context()); !errors.Is(err, redisclient.ErrReply) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestWrongRepliesEndOnlyTheirCall: each call fails with an error of its own, and costs no memory
// that the reply has only announced.
func TestWrongRepliesEndOnlyTheirCall(t *testing.T) { //nolint:paralleltest // it measures what the process allocates
	for name, reply := range hostile {
		t.Run(name, func(t *testing.T) {
			addr := redistest.Fake(t, func(command []string) string {
				if command[0] == "hello" {
					return redistest.Greeting
				}
				return reply
			})
			db := connect(t, addr, false, slog.DiscardHandler)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err := db.Do(t.Context(), "GET", "k").Err()
			if name == "two replies" && err == nil { // the second may come after the call has ended
				err = db.Do(t.Context(), "GET", "k").Err()
			}
			runtime.ReadMemStats(&after)
			if got := after.TotalAlloc - before.TotalAlloc; got > 8<<20 {
				t.Errorf("the call allocated %d bytes", got)
			}
			if !errors.Is(err, redisclient.ErrReply) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestWrongGreetingsEndOnlyTheirConnection: the first reply of a connection is checked, too.
func TestWrongGreetingsEndOnlyTheirConnection(t *testing.T) {
	t.Parallel()
	for name, reply := range hostile {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addr := redistest.Fake(t, func([]string) string { return reply })
			if err := connect(t, addr, false, slog.DiscardHandler).Get(t.Context(), "k").Err(); err == nil {
				t.Error("the greeting was accepted")
			}
		})
	}
}

// TestRepliesShareTheirBound: the bound is for all connections at a time, and for all replies of a
// pipeline.
func TestRepliesShareTheirBound(t *testing.T) {
	t.Parallel()
	const third = maxBytes / 3
	half := make(chan struct{})
	addr := redistest.Fake(t, func(command []string) string {
		switch {
		case command[0] == "hello":
			return redistest.Greeting
		case command[1] == "half":
			return redistest.Bulk(strings.Repeat("a", maxBytes/2))[:maxBytes/4]
		default:
			return redistest.Bulk(strings.Repeat("a", third))
		}
	})
	db := connect(t, addr, false, slog.DiscardHandler)
	pipeline := func(n int) error {
		_, err := db.Pipelined(t.Context(), func(p redis.Pipeliner) error {
			for range n {
				p.Get(t.Context(), "third")
			}
			return nil
		})
		return err
	}
	for range 5 { // what one pipeline has received does not count for the next
		if err := pipeline(2); err != nil {
			t.Fatal(err)
		}
	}
	if err := pipeline(4); !errors.Is(err, redisclient.ErrReply) {
		t.Errorf("a pipeline of more than the bound: %v", err)
	}
	var waits sync.WaitGroup
	defer waits.Wait()
	defer func() { _ = db.Close() }()
	polltest.Eventually(t, "a connection is made again", func() bool { return pipeline(2) == nil })
	waits.Go(func() {
		close(half)
		_ = db.Get(t.Context(), "half").Err() // half a reply: it waits for the rest until the client is closed
	})
	<-half
	polltest.Eventually(t, "the half reply of another connection counts", func() bool { return errors.Is(pipeline(2), redisclient.ErrReply) })
}

// TestRefusedRepliesAreLoggedOnce: a server that repeats itself does not fill the log.
func TestRefusedRepliesAreLoggedOnce(t *testing.T) {
	t.Parallel()
	addr := redistest.Fake(t, func([]string) string { return "*999999999\r\n" })
	var log bytes.Buffer
	db := connect(t, addr, false, slog.NewTextHandler(&log, nil))
	for range 3 {
		if err := db.Get(t.Context(), "k").Err(); !errors.Is(err, redisclient.ErrReply) {
			t.Fatal(err)
		}
	}
	if n := strings.Count(log.String(), "a reply of redis was refused"); n != 1 {
		t.Errorf("%d lines: %s", n, log.String())
	}
}

// TestClosedConnectionsAreNoticed: the library looks at an idle connection before it uses it, also
// through the checks.
func TestClosedConnectionsAreNoticed(t *testing.T) {
	t.Parallel()
	s := redistest.New(t)
	db := connect(t, s.Addr, false, slog.DiscardHandler)
	if err := db.Get(t.Context(), "k").Err(); !errors.Is(err, redis.Nil) {
		t.Fatal(err)
	}
	s.Kill(t)
	s.Start(t)
	if err := db.Get(t.Context(), "k").Err(); !errors.Is(err, redis.Nil) {
		t.Errorf("the first call after a restart: %v", err)
	}
}

// FuzzReplies plays a server to the library: no bytes may end the process.
func FuzzReplies(f *testing.F) {
	for _, reply := range hostile {
		f.Add(redistest.Greeting+reply, "+OK\r\n")
	}
	for _, reply := range messages {
		f.Add(redistest.Greeting, reply)
	}
	f.Add(redistest.Greeting+"*1\r\n*2\r\n$3\r\n1-0\r\n*2\r\n$4\r\nkind\r\n$5\r\ndelta\r\n", subscribed+told)
	f.Fuzz(func(t *testing.T, replies, told string) {
		play(t, true, replies, told, func(db *redis.Client) {
			sub := db.Subscribe(t.Context(), "c")
			defer sub.Close()
			for range 3 {
				if _, err := sub.Receive(t.Context()); err != nil {
					return
				}
			}
		})
		for _, call := range []func(db *redis.Client){
			func(db *redis.Client) { _ = db.XRangeN(t.Context(), "k", "-", "+", 1).Err() },
			func(db *redis.Client) { _ = db.HGetAll(t.Context(), "k").Err() },
			func(db *redis.Client) { _ = db.HMGet(t.Context(), "k", "a", "b").Err() },
			func(db *redis.Client) { _ = db.PTTL(t.Context(), "k").Err() },
			func(db *redis.Client) { _ = db.SRandMemberN(t.Context(), "k", 2).Err() },
			func(db *redis.Client) { _, _ = db.EvalSha(t.Context(), "0", nil).Int64Slice() },
			func(db *redis.Client) { _, _ = db.EvalSha(t.Context(), "0", nil).StringSlice() },
		} {
			play(t, false, replies, told, call)
		}
	})
}

// play calls a client whose server says replies, then told, and leaves.
func play(t *testing.T, messages bool, replies, told string, call func(db *redis.Client)) {
	t.Helper()
	o, err := redisclient.Over(func() net.Conn { return &script{says: strings.NewReader(replies + told)} }, messages, maxBytes)
	if err != nil {
		t.Fatal(err)
	}
	db := redis.NewClient(o)
	call(db)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// A script is a connection whose other end has said all that it will say.
type script struct {
	net.Conn
	says *strings.Reader
}

func (s *script) Read(p []byte) (int, error)       { return s.says.Read(p[:min(len(p), 7)]) }
func (s *script) Write(p []byte) (int, error)      { return len(p), nil }
func (s *script) Close() error                     { return nil }
func (s *script) SetDeadline(time.Time) error      { return nil }
func (s *script) SetReadDeadline(time.Time) error  { return nil }
func (s *script) SetWriteDeadline(time.Time) error { return nil }
func (s *script) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
