package upstream

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"log"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/go-zeromq/zmq4"

	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/llm-worker/kvevents"
)

// A caller is an engine that connects to its subscriber, like llm-d's engines, with another
// implementation of ZeroMQ.
type caller struct {
	zmq4.Socket
	number uint64
}

// call connects a publisher to a listener that binds.
func call(t *testing.T, l *Listener) *caller {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	c := &caller{Socket: zmq4.NewPub(ctx, zmq4.WithLogger(log.New(io.Discard, "", 0)), zmq4.WithAutomaticReconnect(false))}
	t.Cleanup(func() { _ = c.Close(); cancel() })
	polltest.Eventually(t, "the listener has bound", func() bool { return l.bound.Load() != nil })
	if err := c.Dial("tcp://" + (*l.bound.Load()).String()); err != nil {
		t.Fatal(err)
	}
	polltest.Eventually(t, "the listener has subscribed", func() bool { return len(c.Socket.(zmq4.Topics).Topics()) == 1 })
	return c
}

func (c *caller) say(t *testing.T, events ...any) {
	t.Helper()
	if err := c.SendMulti(zmq4.NewMsgFrom([]byte("kv@pod@m"), binary.BigEndian.AppendUint64(nil, c.number), pack(t, list{1.5, events, 0}))); err != nil {
		t.Fatal(err)
	}
	c.number++
}

func TestEngineMayConnectToTheListener(t *testing.T) {
	for _, events := range []string{"@tcp://127.0.0.1:0", "tcp://*:0"} {
		l, held := follow(t, Options{Events: events, Topic: "kv@"})
		e := call(t, l)
		e.say(t, list{blockStored, list{7}, 0, list{1, 2}, 2}) // an array, whose parent is llm-d's root
		polltest.Eventually(t, "a block of an array is known", func() bool { return held.Held() == 1 })
		e.say(t, dict{"type": blockStored, "block_hashes": list{8}, "parent_block_hash": 7, "token_ids": list{3, 4}, "block_size": 2, "medium": "GPU"})
		polltest.Eventually(t, "a block of a map is known", func() bool { return held.Held() == 2 })
		if l.Block() != 2 {
			t.Errorf("%s: blocks have %d tokens", events, l.Block())
		}
		_ = e.Close()
		polltest.Eventually(t, "the blocks of a gone engine are forgotten", func() bool { return held.Held() == 0 })
		e = call(t, l)
		e.say(t, stored(1))
		polltest.Eventually(t, "the engine is followed again", func() bool { return held.Held() == 1 })
	}
}

func TestNewEngineReplacesThePreviousEngine(t *testing.T) {
	l, held := follow(t, Options{Events: "@tcp://127.0.0.1:0"})
	e := call(t, l)
	e.say(t, stored(1), stored(2))
	polltest.Eventually(t, "two blocks are known", func() bool { return held.Held() == 2 })
	again := call(t, l)
	again.say(t, stored(1))
	polltest.Eventually(t, "the blocks of the previous engine are forgotten", func() bool { return held.Held() == 1 })
}

// TestConnectionsThatPublishNothingAreNoEngines checks that connections without a publisher neither
// replace the engine nor block another one.
func TestConnectionsThatPublishNothingAreNoEngines(t *testing.T) {
	l, held := follow(t, Options{Events: "@tcp://127.0.0.1:0"})
	e := call(t, l)
	e.say(t, stored(1))
	polltest.Eventually(t, "one block is known", func() bool { return held.Held() == 1 })
	addr := (*l.bound.Load()).String()
	for range 2 * maxGreetings {
		silent, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer silent.Close()
	}
	page, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer page.Close()
	_, _ = io.WriteString(page, "GET / HTTP/1.1\r\n\r\n"+strings.Repeat("x", 64))
	_, _ = io.Copy(io.Discard, page) // until it is closed
	e.say(t, stored(2))
	polltest.Eventually(t, "the engine is still followed", func() bool { return held.Held() == 2 })
}

func TestDroppedBlocksAreCountedAndLoggedAtIntervals(t *testing.T) {
	var lines bytes.Buffer
	counted := map[DropReason]int{}
	l := New(Options{Events: "tcp://127.0.0.1:1"}, &kvevents.Hub{}, slog.New(slog.NewTextHandler(&lines, nil)), func(r DropReason, n int) { counted[r] += n })
	for range 100 {
		l.names.apply(&event{kind: blockStored, hashes: []uint64{7, 8}, parent: new(uint64(6)), tokens: []uint32{1, 2}, size: 1})
	}
	l.names.apply(&event{kind: blockStored, hashes: []uint64{7}, tokens: []uint32{1}, size: 1, foreign: true})
	if counted[UnknownParent] != 200 || counted[NotPlainText] != 1 {
		t.Error(counted)
	}
	if n := strings.Count(lines.String(), "msg="); n != 1 || !strings.Contains(lines.String(), "unknown_parent=2") {
		t.Errorf("%d lines: %s", n, &lines)
	}
	l.drops.next = time.Now()
	l.drop(Malformed, 3)
	if text := lines.String(); strings.Count(text, "msg=") != 2 || !strings.Contains(text, "unknown_parent=198 not_plain_text=1 malformed=3") {
		t.Error(text)
	}
}
