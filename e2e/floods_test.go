package e2e

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/internal/tier"
)

const (
	// floodTime bounds one attack.
	floodTime = 20 * time.Second
	// floodMemory bounds what one attack may add to a process's memory.
	floodMemory = 48 << 20
)

// A port is a port that speaks HTTP/2.
type port struct {
	addr, scheme, method string
	tls                  *tls.Config // nil without TLS
}

// An attacker is a connection that sends HTTP/2 frames without the rules of a client.
type attacker struct {
	port   port
	conn   net.Conn
	out    bytes.Buffer // frames that are not yet sent
	framer *http2.Framer
	header bytes.Buffer
	hpack  *hpack.Encoder
	gone   chan struct{} // closed when the server has closed the connection

	mu   sync.Mutex     // guards seen
	seen map[string]int // errors and statuses that the server has sent
}

// attack connects to a port, and reads the frames of the server.
func (p port) attack(t *testing.T, settings ...http2.Setting) *attacker {
	t.Helper()
	conn, err := net.Dial("tcp", p.addr)
	if err != nil {
		t.Fatal(err)
	}
	if p.tls != nil {
		conn = tls.Client(conn, p.tls)
	}
	a := &attacker{port: p, conn: conn, gone: make(chan struct{}), seen: map[string]int{}}
	a.framer = http2.NewFramer(&a.out, conn)
	a.framer.AllowIllegalWrites = true
	a.hpack = hpack.NewEncoder(&a.header)
	a.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	a.out.WriteString(http2.ClientPreface)
	_ = a.framer.WriteSettings(settings...) // cannot fail: a buffer
	go a.read()
	t.Cleanup(func() {
		_ = conn.Close()
		<-a.gone
	})
	a.flush()
	return a
}

func (a *attacker) read() {
	defer close(a.gone)
	for {
		f, err := a.framer.ReadFrame()
		switch f := f.(type) {
		case *http2.GoAwayFrame:
			a.saw(f.ErrCode.String())
		case *http2.RSTStreamFrame:
			a.saw(f.ErrCode.String())
		case *http2.MetaHeadersFrame:
			for _, h := range f.Fields {
				if h.Name == "grpc-status" || h.Name == ":status" {
					a.saw(h.Name + " " + h.Value)
				}
			}
		}
		if _, ok := errors.AsType[http2.StreamError](err); err != nil && !ok {
			return
		}
	}
}

func (a *attacker) saw(what string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.seen[what]++
}

// answers returns the errors and statuses that the server has sent.
func (a *attacker) answers() map[string]int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.seen)
}

// await returns when the server has closed the connection.
func (a *attacker) await(t *testing.T, what string) {
	t.Helper()
	polltest.Eventually(t, what, a.closed)
}

func (a *attacker) closed() bool {
	select {
	case <-a.gone:
		return true
	default:
		return false
	}
}

// flush sends the written frames, and reports whether the connection is open.
func (a *attacker) flush() bool {
	if a.closed() {
		return false
	}
	_ = a.conn.SetWriteDeadline(time.Now().Add(floodTime))
	_, err := a.conn.Write(a.out.Bytes())
	a.out.Reset()
	return err == nil
}

// block returns the header block of a request.
func (a *attacker) block() []byte {
	return a.encode(":method", "POST", ":scheme", a.port.scheme, ":path", a.port.method, ":authority", "localhost", "content-type", "application/grpc", "te", "trailers")
}

// note returns the block of a header of n bytes.
func (a *attacker) note(n int) []byte { return a.encode("x-note", strings.Repeat("a", n)) }

func (a *attacker) encode(fields ...string) []byte {
	a.header.Reset()
	for i := 0; i < len(fields); i += 2 {
		_ = a.hpack.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	return bytes.Clone(a.header.Bytes())
}

// batchBytes is the number of bytes from which on written frames are sent.
const batchBytes = 16 << 10

// frames sends n frames in batches, until the server closes the connection.
func (a *attacker) frames(n int, write func(i int)) (sent int) {
	late := time.Now().Add(floodTime)
	for sent < n && time.Now().Before(late) {
		for a.out.Len() < batchBytes {
			write(sent)
			sent++
		}
		if !a.flush() {
			break
		}
	}
	return sent
}

// A flood sends frames, and returns how many it has sent of how many.
type flood func(a *attacker) (sent, all int)

// repeat returns a flood of n frames, after the frames of begin.
func repeat(n int, begin func(a *attacker), write func(a *attacker, i int)) flood {
	return func(a *attacker) (sent, all int) {
		if begin != nil {
			begin(a)
		}
		return a.frames(n, func(i int) { write(a, i) }), n
	}
}

// call begins a call: headers without a message.
func (a *attacker) call(i int, ended bool, block []byte) {
	_ = a.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*i + 1), BlockFragment: block, EndHeaders: ended})
}

// manyFrames are more bytes than the buffers of the server and of the connection take.
const manyFrames = 20_000_000

var floods = map[string]flood{
	"PING":     repeat(manyFrames, nil, func(a *attacker, _ int) { _ = a.framer.WritePing(false, [8]byte{}) }),
	"SETTINGS": repeat(manyFrames, nil, func(a *attacker, _ int) { _ = a.framer.WriteSettings() }),
	"WINDOW_UPDATE": repeat(manyFrames, nil, func(a *attacker, _ int) {
		_ = a.framer.WriteWindowUpdate(0, 1)
	}),
	"PRIORITY": repeat(manyFrames, nil, func(a *attacker, i int) {
		_ = a.framer.WritePriority(uint32(2*i+1), http2.PriorityParam{})
	}),
	"unknown frames": repeat(manyFrames, nil, func(a *attacker, _ int) { _ = a.framer.WriteRawFrame(0xfa, 0, 0, nil) }),
	"empty DATA": repeat(manyFrames, func(a *attacker) { a.call(0, true, a.block()) }, func(a *attacker, _ int) {
		_ = a.framer.WriteData(1, false, nil)
	}),
	"rapid reset": repeat(manyFrames, nil, func(a *attacker, i int) {
		a.call(i, true, a.block())
		_ = a.framer.WriteRSTStream(uint32(2*i+1), http2.ErrCodeCancel)
	}),
	"rapid reset by the server": repeat(manyFrames, nil, func(a *attacker, i int) {
		a.call(i, true, a.block())
		_ = a.framer.WriteWindowUpdate(uint32(2*i+1), 0) // an error of the stream
	}),
	"CONTINUATION": repeat(20_000, func(a *attacker) { a.call(0, false, a.block()) }, func(a *attacker, _ int) {
		_ = a.framer.WriteContinuation(1, false, a.note(12<<10))
	}),
	"empty CONTINUATION": repeat(manyFrames, func(a *attacker) { a.call(0, false, a.block()) }, func(a *attacker, _ int) {
		_ = a.framer.WriteContinuation(1, false, nil)
	}),
	"HPACK bomb": repeat(20_000, func(a *attacker) { a.call(0, true, slices.Concat(a.block(), a.note(3<<10))) }, func(a *attacker, i int) {
		a.call(i+1, true, append(a.block(), bytes.Repeat([]byte{0x80 | 62}, 15<<10)...)) // references to the note
	}),
	"DATA beyond the window": repeat(manyFrames, func(a *attacker) { a.call(0, true, a.block()) }, func(a *attacker, _ int) {
		_ = a.framer.WriteData(1, false, []byte{0})
	}),
	"oversized frame": repeat(1000, nil, func(a *attacker, _ int) {
		_ = a.framer.WriteRawFrame(http2.FrameData, 0, 1, make([]byte, 1<<20))
	}),
}

// TestFloodsEndWithTheirConnection sends floods of HTTP/2 frames to the three ports that speak it.
// The server closes the attacker's connection, or refuses its calls, before it has taken all frames.
// Its memory is bounded, and a stream of another client goes on.
func TestFloodsEndWithTheirConnection(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	asShipped(t)
	limited := []string{"--max-calls-per-connection", "1000"}
	w := run(t, separate, flags{chat: limited, worker: append([]string{"--pace", "40"}, limited...)})
	pair, roots := newCertificate(t)
	front := service(t, apiService, "127.0.0.1:0", []string{"--chat", w.chat, "--tls-cert", pair.Cert, "--tls-key", pair.Key})
	want := w.answer(t, greedy(short))
	for process, p := range map[*process]port{
		w.processes[chatService]: {addr: w.chat, scheme: "http", method: chatv1.Chat_Models_FullMethodName},
		w.processes[llmWorker]:   {addr: w.worker, scheme: "http", method: workerv1.Worker_Info_FullMethodName},
		front:                    {addr: front.listening(t), scheme: "https", method: "/v1/chat/completions", tls: &tls.Config{RootCAs: roots, ServerName: "127.0.0.1", NextProtos: []string{"h2"}}},
	} {
		for name, flood := range floods {
			before := process.memory(t)
			neighbour := w.open(t, greedy(short)).begun(t)
			a := p.attack(t)
			sent, all := flood(a)
			a.await(t, fmt.Sprintf("%s: %s: the connection is closed", process.Name, name))
			if sent >= all {
				t.Errorf("%s: %s: the server took all %d frames; it answered %v", process.Name, name, all, a.answers())
			}
			if grown := process.memory(t) - before; grown > floodMemory {
				t.Errorf("%s: %s: the server's memory grew by %d MiB", process.Name, name, grown>>20)
			}
			if e := neighbour.rest(t); !e.done || e.text.String() != want {
				t.Errorf("%s: %s: the stream of another client is %q", process.Name, name, e.text.String())
			}
		}
	}
	for _, p := range []*process{w.processes[chatService], w.processes[llmWorker]} {
		p.logged(t, "the flood", func(r record) bool { return r.Msg == "grpc connections are closed" })
	}
	front.logged(t, "the flood", func(r record) bool { return r.Msg == "an https connection was closed" })
}

// TestClosedWindowsAreBounded: a caller that never opens its flow-control windows gets no answers.
// The server keeps the answers of a bounded number of its calls, and closes its connection then.
func TestClosedWindowsAreBounded(t *testing.T) {
	t.Parallel()
	asShipped(t)
	limited := []string{"--max-calls-per-connection", "1000"}
	w := run(t, separate, flags{chat: limited, worker: limited})
	for process, p := range map[*process]port{
		w.processes[chatService]: {addr: w.chat, scheme: "http", method: chatv1.Chat_Models_FullMethodName},
		w.processes[llmWorker]:   {addr: w.worker, scheme: "http", method: workerv1.Worker_Info_FullMethodName},
	} {
		before := process.memory(t)
		a := p.attack(t, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
		a.frames(8000, func(i int) {
			id := uint32(2*i + 1)
			_ = a.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: a.block(), EndHeaders: true})
			_ = a.framer.WriteData(id, true, make([]byte, 5)) // an empty message
		})
		polltest.Eventually(t, process.Name+": the connection is closed, or further calls are refused", func() bool {
			return a.closed() || a.answers()["REFUSED_STREAM"] > 0
		})
		if grown := process.memory(t) - before; grown > floodMemory {
			t.Errorf("%s: the server's memory grew by %d MiB", process.Name, grown>>20)
		}
	}
	w.works(t)
}

// TestUnprocessedFramesAreBounded: a caller sends frames that need answers, reads none of them, and goes
// on sending. The server does not keep what it cannot process.
func TestUnprocessedFramesAreBounded(t *testing.T) {
	t.Parallel()
	asShipped(t)
	w := run(t, separate, flags{})
	for process, p := range map[*process]port{
		w.processes[chatService]: {addr: w.chat},
		w.processes[llmWorker]:   {addr: w.worker},
	} {
		before := process.memory(t)
		conn, err := net.Dial("tcp", p.addr)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		framer := http2.NewFramer(&out, nil)
		framer.AllowIllegalWrites = true
		out.WriteString(http2.ClientPreface)
		_ = framer.WriteSettings()
		_ = conn.SetWriteDeadline(time.Now().Add(unreadTime))
		for sent := 0; sent < unreadBytes && err == nil; sent += batchBytes {
			if sent > 0 {
				out.Reset()
			}
			if sent < 10*batchBytes {
				for out.Len() < batchBytes {
					_ = framer.WritePing(false, [8]byte{})
				}
			}
			_ = framer.WriteData(1, false, make([]byte, batchBytes))
			_, err = conn.Write(out.Bytes())
		}
		if err == nil {
			t.Errorf("%s took %d MiB from a caller that reads nothing", process.Name, unreadBytes>>20)
		}
		if grown := process.memory(t) - before; grown > floodMemory {
			t.Errorf("%s: the memory grew by %d MiB", process.Name, grown>>20)
		}
		_ = conn.Close()
	}
	w.works(t)
}

const (
	unreadBytes = 512 << 20
	unreadTime  = 5 * time.Second // of a write; the server need not close the connection at once
)
