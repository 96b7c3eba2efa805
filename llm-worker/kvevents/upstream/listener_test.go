package upstream

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"log"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zeromq/zmq4"

	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/llm-worker/kvevents"
)

// An engine publishes like vLLM, with another implementation of ZeroMQ.
type engine struct {
	pub, router zmq4.Socket
	addr        string
	replay      string

	mu    sync.Mutex // guards the following field
	batch [][]byte   // batches to replay
}

// publish starts an engine. An empty addr means any port. Its replay socket sends batches from the
// oldest stored batch on.
func publish(t *testing.T, addr string) *engine {
	t.Helper()
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	quiet := zmq4.WithLogger(log.New(io.Discard, "", 0))
	ctx, cancel := context.WithCancel(context.Background())
	e := &engine{pub: zmq4.NewPub(ctx, quiet), router: zmq4.NewRouter(ctx, quiet)}
	polltest.Eventually(t, "the address is free", func() bool { return e.pub.Listen("tcp://"+addr) == nil })
	if err := e.router.Listen("tcp://127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	e.addr, e.replay = e.pub.Addr().String(), e.router.Addr().String()
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			asked, err := e.router.Recv()
			if err != nil {
				return
			}
			from := binary.BigEndian.Uint64(asked.Frames[2])
			e.mu.Lock()
			for i, b := range e.batch {
				if uint64(i) >= from && b != nil {
					_ = e.router.SendMulti(zmq4.NewMsgFrom(asked.Frames[0], nil, binary.BigEndian.AppendUint64(nil, uint64(i)), b))
				}
			}
			e.mu.Unlock()
			_ = e.router.SendMulti(zmq4.NewMsgFrom(asked.Frames[0], nil, bytes.Repeat([]byte{0xff}, 8), nil))
		}
	})
	t.Cleanup(func() {
		_ = e.pub.Close()
		_ = e.router.Close()
		cancel()
		wg.Wait()
	})
	return e
}

// say publishes a batch, or only stores it for replay if lost is set.
func (e *engine) say(t *testing.T, lost bool, events ...any) {
	t.Helper()
	e.mu.Lock()
	number, b := uint64(len(e.batch)), pack(t, list{1.5, events})
	e.batch = append(e.batch, b)
	e.mu.Unlock()
	if lost {
		return
	}
	if err := e.pub.SendMulti(zmq4.NewMsgFrom([]byte("kv"), binary.BigEndian.AppendUint64(nil, number), b)); err != nil {
		t.Fatal(err)
	}
}

// restart numbers the batches anew, on the same connection.
func (e *engine) restart() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.batch = nil
}

// stored returns an event of one block that begins a prompt.
func stored(hash int) any { return list{blockStored, list{hash}, nil, list{hash, hash}, 2, nil} }

// follow runs a listener until the test ends.
func follow(t *testing.T, o Options) (l *Listener, held *kvevents.Hub) {
	t.Helper()
	if err := o.Validate(); err != nil {
		t.Fatal(err)
	}
	held = &kvevents.Hub{}
	l = New(o, held, slog.New(slog.DiscardHandler), nil)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { l.Run(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	return l, held
}

func (e *engine) awaitSubscriber(t *testing.T) {
	t.Helper()
	polltest.Eventually(t, "the listener has subscribed", func() bool { return len(e.pub.(zmq4.Topics).Topics()) == 1 })
}

func TestListenerFollowsAnEngine(t *testing.T) {
	e := publish(t, "")
	e.say(t, true, stored(1), stored(2)) // before the listener subscribed
	l, held := follow(t, Options{Events: "tcp://" + e.addr, Replay: "tcp://" + e.replay, Topic: "kv"})
	e.awaitSubscriber(t)
	polltest.Eventually(t, "the listener has counted the held blocks", func() bool { return held.Held() == 2 })
	e.say(t, false, stored(3), list{blockRemoved, list{1}})
	polltest.Eventually(t, "changes are known", func() bool { return held.Held() == 2 && l.Block() == 2 })
	e.say(t, true, stored(4)) // lost on the way
	e.say(t, true, stored(5))
	e.say(t, false, stored(6))
	polltest.Eventually(t, "the listener has replayed the lost events", func() bool { return held.Held() == 5 })
	e.say(t, false, list{allCleared}, stored(7))
	polltest.Eventually(t, "what was cleared is gone", func() bool { return held.Held() == 1 })
}

// TestRankIsFollowedOnAPortOfItsOwn: vLLM and SGLang add the number of the rank to both ports.
func TestRankIsFollowedOnAPortOfItsOwn(t *testing.T) {
	const rank = 2
	e := publish(t, "")
	e.say(t, true, stored(1))
	base := func(addr string) string {
		host, port, err := net.SplitHostPort(addr)
		n, err2 := strconv.Atoi(port)
		if err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
		return "tcp://" + net.JoinHostPort(host, strconv.Itoa(n-rank))
	}
	_, held := follow(t, Options{Events: base(e.addr), Replay: base(e.replay), Rank: rank})
	e.awaitSubscriber(t)
	polltest.Eventually(t, "the held event is replayed", func() bool { return held.Held() == 1 })
	e.say(t, false, stored(3))
	polltest.Eventually(t, "a new block is known", func() bool { return held.Held() == 2 })
}

func TestBlocksOfLostBatchesAreForgotten(t *testing.T) {
	e := publish(t, "")
	_, held := follow(t, Options{Events: "tcp://" + e.addr})
	e.awaitSubscriber(t)
	e.say(t, false, stored(1), stored(2))
	polltest.Eventually(t, "two are known", func() bool { return held.Held() == 2 })
	e.say(t, true, list{blockRemoved, list{1}})
	e.say(t, false, stored(3))
	polltest.Eventually(t, "one alone is certain", func() bool { return held.Held() == 1 })
}

// TestNumbersThatBeginAgainAreARestart: a proxy of the engine's socket keeps the connection while the engine
// restarts.
func TestNumbersThatBeginAgainAreARestart(t *testing.T) {
	for name, o := range map[string]func(*engine) Options{
		"with replay":    func(e *engine) Options { return Options{Events: "tcp://" + e.addr, Replay: "tcp://" + e.replay} },
		"without replay": func(e *engine) Options { return Options{Events: "tcp://" + e.addr} },
	} {
		t.Run(name, func(t *testing.T) {
			e := publish(t, "")
			_, held := follow(t, o(e))
			e.awaitSubscriber(t)
			e.say(t, false, stored(1), stored(2))
			e.say(t, false, stored(3))
			polltest.Eventually(t, "three are known", func() bool { return held.Held() == 3 })
			e.restart()
			e.say(t, false, stored(4))
			polltest.Eventually(t, "the blocks of the engine that was are forgotten", func() bool { return held.Held() == 1 })
			e.say(t, false, stored(5), stored(6))
			polltest.Eventually(t, "it is followed on", func() bool { return held.Held() == 3 })
			e.restart()
			e.say(t, true, stored(7)) // lost on the way
			e.say(t, false, stored(8))
			want := 1
			if o(e).Replay != "" {
				want = 2
			}
			polltest.Eventually(t, "so is the next one", func() bool { return held.Held() == want })
		})
	}
}

// TestRestartBeforeTheFirstBatchIsFound: the replay was of the engine that was.
func TestRestartBeforeTheFirstBatchIsFound(t *testing.T) {
	e := publish(t, "")
	e.say(t, true, stored(1))
	e.say(t, true, stored(2))
	_, held := follow(t, Options{Events: "tcp://" + e.addr, Replay: "tcp://" + e.replay})
	e.awaitSubscriber(t)
	polltest.Eventually(t, "the listener has counted the held blocks", func() bool { return held.Held() == 2 })
	e.restart()
	e.say(t, false, stored(3))
	polltest.Eventually(t, "only the new engine's block is known", func() bool { return held.Held() == 1 })
}

// TestClearedBlocksAreForgottenWhateverTheNumber: a batch whose number was replayed already, and that clears
// the cache.
func TestClearedBlocksAreForgottenWhateverTheNumber(t *testing.T) {
	e := publish(t, "")
	for hash := range 5 {
		e.say(t, true, stored(hash+1))
	}
	_, held := follow(t, Options{Events: "tcp://" + e.addr, Replay: "tcp://" + e.replay})
	e.awaitSubscriber(t)
	polltest.Eventually(t, "the listener has counted the held blocks", func() bool { return held.Held() == 5 })
	e.mu.Lock()
	e.batch = e.batch[:3]
	e.mu.Unlock()
	e.say(t, false, list{allCleared}, stored(7))
	polltest.Eventually(t, "only the block after the clearing is known", func() bool { return held.Held() == 1 })
	e.say(t, false, stored(8)) // its number was replayed, too
	polltest.Eventually(t, "the batches after it are applied", func() bool { return held.Held() == 2 })
}

func TestListenerReconnectsToAnEngine(t *testing.T) {
	e := publish(t, "")
	_, held := follow(t, Options{Events: "tcp://" + e.addr})
	e.awaitSubscriber(t)
	e.say(t, false, stored(1), stored(2))
	polltest.Eventually(t, "two are known", func() bool { return held.Held() == 2 })
	_ = e.pub.Close()
	polltest.Eventually(t, "nothing is known of an engine that is gone", func() bool { return held.Held() == 0 })
	again := publish(t, e.addr)
	again.awaitSubscriber(t)
	again.say(t, false, stored(1))
	polltest.Eventually(t, "it is followed again", func() bool { return held.Held() == 1 })
}

// TestPeersWithoutZeroMQAreDisconnected sends invalid handshakes and messages.
func TestPeersWithoutZeroMQAreDisconnected(t *testing.T) {
	greeting := make([]byte, 64)
	greeting[0], greeting[9], greeting[10] = 0xff, 0x7f, 3
	copy(greeting[12:], "NULL")
	secure := bytes.Clone(greeting)
	copy(secure[12:], "CURVE")
	ready := append(bytes.Clone(greeting), "\x04\x06\x05READY"...)
	for want, sent := range map[string][]byte{
		"not speak ZMTP 3":     []byte(strings.Repeat("HTTP/1.1 400 Bad Request\r\n", 3)),
		"security mechanism":   secure,
		"not ready":            append(bytes.Clone(greeting), "\x00\x06\x05READY"...),
		"more than 16777216":   append(bytes.Clone(ready), 2, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff),
		"more than 8 frames":   append(bytes.Clone(ready), bytes.Repeat([]byte{1, 0}, 10)...),
		"a message of 1 frame": append(bytes.Clone(ready), 0, 1, 'x'),
		"batch 0: EOF":         append(bytes.Clone(ready), "\x01\x00\x01\x08\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"...),
		"is a \"SUB\" socket":  append(bytes.Clone(greeting), "\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x03SUB"...),
		"EOF":                  ready,
	} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write(sent)
			_ = c.(*net.TCPConn).CloseWrite()
			_, _ = io.Copy(io.Discard, c)
			_ = c.Close()
		})
		l := New(Options{Events: "tcp://" + ln.Addr().String()}, &kvevents.Hub{}, slog.New(slog.DiscardHandler), nil)
		if err := l.connect(t.Context(), func() {}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
		_ = ln.Close()
		wg.Wait()
	}
}

// A worker that shuts down must not wait for a silent peer.
func TestListenerEndsWhileAPeerIsSilent(t *testing.T) {
	defer func(d time.Duration) { handshakeTimeout = d }(handshakeTimeout)
	handshakeTimeout = time.Hour
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	l := New(Options{Events: "tcp://" + ln.Addr().String()}, &kvevents.Hub{}, slog.New(slog.DiscardHandler), nil)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { l.Run(ctx); close(ended) }()
	peer, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	if _, err := io.ReadFull(peer, make([]byte, 64)); err != nil { // its greeting
		t.Fatal(err)
	}
	cancel()
	polltest.Receive(t, "the listener ends", ended)
}

func TestPingsAreAnswered(t *testing.T) {
	ours, theirs := net.Pipe()
	var wg sync.WaitGroup
	wg.Go(func() {
		_, _ = theirs.Write([]byte("\x04\x08\x04PING\x00\x07x"))
		pong := make([]byte, 8)
		if _, err := io.ReadFull(theirs, pong); err != nil || string(pong) != "\x04\x06\x04PONGx" {
			t.Errorf("%q, %v", pong, err)
		}
		_, _ = theirs.Write([]byte("\x04\x03\x02HI\x00\x01m"))
	})
	if frames, err := (&conn{Conn: ours}).receive(); err != nil || len(frames) != 1 || string(frames[0]) != "m" {
		t.Errorf("%q, %v", frames, err)
	}
	wg.Wait()
}

func TestInvalidAddressesAreRefused(t *testing.T) {
	for _, o := range []Options{{Events: "127.0.0.1:1"}, {Events: "tcp://x"}, {Replay: "tcp://127.0.0.1:1"}, {Events: "tcp://:5557"}, {Events: "@x"}, {Events: "tcp://a:1", Replay: "tcp://*:2"}, {Topic: "kv"}, {Events: "tcp://a:1", Topic: strings.Repeat("x", 300)}, {Events: "tcp://a:65535", Rank: 1}, {Events: "tcp://a:1", Replay: "tcp://a:65000", Rank: 600}} {
		if o.Validate() == nil {
			t.Errorf("%+v", o)
		}
	}
}

func FuzzReceive(f *testing.F) {
	f.Add([]byte{1, 0, 0, 1, 7})
	f.Add([]byte{2, 0, 0, 0, 0, 0, 0, 0, 1, 7})
	f.Fuzz(func(t *testing.T, sent []byte) {
		ours, theirs := net.Pipe()
		var wg sync.WaitGroup
		wg.Go(func() {
			_, _ = theirs.Write(sent)
			_ = theirs.Close()
		})
		c := &conn{Conn: ours}
		for {
			frames, err := c.receive()
			if err != nil {
				break
			}
			if len(frames) == 0 || len(frames) > maxFrames {
				t.Error(len(frames))
			}
		}
		_ = ours.Close()
		wg.Wait()
	})
}
