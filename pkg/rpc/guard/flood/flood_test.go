package flood_test

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"github.com/whence-dev/whence/pkg/rpc/guard/flood"
)

// frames returns the bytes of the frames that write writes.
func frames(write func(f *http2.Framer)) []byte {
	var b bytes.Buffer
	f := http2.NewFramer(&b, nil)
	f.AllowIllegalWrites = true
	write(f)
	return b.Bytes()
}

func ping(f *http2.Framer) { _ = f.WritePing(false, [8]byte{}) }

// call writes the frames of one call with a short request.
func call(id uint32) func(f *http2.Framer) {
	return func(f *http2.Framer) {
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: make([]byte, 200), EndHeaders: true})
		_ = f.WriteData(id, true, make([]byte, 100))
	}
}

// answer writes the frames of an answer.
func answer(id uint32) func(f *http2.Framer) {
	return func(f *http2.Framer) {
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: make([]byte, 60), EndHeaders: true})
		_ = f.WriteData(id, false, make([]byte, 100))
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: make([]byte, 30), EndHeaders: true, EndStream: true})
	}
}

func TestFloodsAreErrors(t *testing.T) {
	for name, test := range map[string]struct {
		begin, write func(f *http2.Framer)
		least, most  int // repetitions of write without an error
	}{
		"PING":               {nil, ping, 9_999, 10_001},
		"SETTINGS":           {nil, func(f *http2.Framer) { _ = f.WriteSettings() }, 9_999, 10_001},
		"unknown frames":     {nil, func(f *http2.Framer) { _ = f.WriteRawFrame(0xfa, 0, 0, []byte("x")) }, 9_999, 10_001},
		"empty DATA":         {nil, func(f *http2.Framer) { _ = f.WriteData(1, false, nil) }, 9_999, 10_001},
		"DATA of no stream":  {nil, func(f *http2.Framer) { _ = f.WriteData(1, false, []byte("x")) }, 9_999, 10_001},
		"empty CONTINUATION": {nil, func(f *http2.Framer) { _ = f.WriteContinuation(1, false, nil) }, 9_999, 10_001},
		"long CONTINUATION":  {nil, func(f *http2.Framer) { _ = f.WriteContinuation(1, false, make([]byte, 16<<10)) }, 10, flood.MaxHeaderBlock >> 14},
		"long HEADERS": {nil, func(f *http2.Framer) {
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: make([]byte, 16<<10), EndHeaders: true})
		}, 10, 200},
		"rapid reset": {nil, func(f *http2.Framer) {
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: make([]byte, 100), EndHeaders: true})
			_ = f.WriteRSTStream(1, http2.ErrCodeCancel)
		}, 4_999, 5_001},
	} {
		synctest.Test(t, func(t *testing.T) {
			m, b, n := flood.NewMeter(math.MaxUint32, false), frames(test.write), 0
			var err error
			for err = m.Received(b); err == nil && n < 2*test.most; err = m.Received(b) {
				n++
			}
			if !errors.Is(err, flood.ErrFlood) || n < test.least || n > test.most {
				t.Errorf("%s: %v after %d", name, err, n)
			}
		})
	}
}

// TestBusyCallersAreAllowed: calls that are answered, data, and 900 PINGs a second are allowed for
// as long as the connection lasts.
func TestBusyCallersAreAllowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := flood.NewMeter(1, false)
		for id := uint32(1); id < 200_000; id += 2 {
			if err := m.Received(frames(call(id))); err != nil {
				t.Fatalf("call %d: %v", id, err)
			}
			m.Sent(frames(answer(id)))
		}
		if err := m.Received(frames(func(f *http2.Framer) {
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 200_001, EndHeaders: true})
		})); err != nil {
			t.Fatal(err)
		}
		for i := range 100_000 {
			if err := m.Received(frames(func(f *http2.Framer) { _ = f.WriteData(200_001, false, []byte("x")) })); err != nil {
				t.Fatalf("data %d: %v", i, err)
			}
		}
		for i := range 50_000 {
			time.Sleep(time.Second / 900)
			if err := m.Received(frames(ping)); err != nil {
				t.Fatalf("PING %d: %v", i, err)
			}
		}
	})
}

func TestOpenStreamsAreBounded(t *testing.T) {
	for name, end := range map[string]func(m *flood.Meter, id uint32){
		"left open": func(*flood.Meter, uint32) {},
		"answered":  func(m *flood.Meter, id uint32) { m.Sent(frames(answer(id))) },
		"data ends": func(m *flood.Meter, id uint32) {
			m.Sent(frames(func(f *http2.Framer) { _ = f.WriteData(id, true, nil) }))
		},
		"reset by the server": func(m *flood.Meter, id uint32) {
			m.Sent(frames(func(f *http2.Framer) { _ = f.WriteRSTStream(id, http2.ErrCodeCancel) }))
		},
		"reset by the peer": func(m *flood.Meter, id uint32) {
			if err := m.Received(frames(func(f *http2.Framer) { _ = f.WriteRSTStream(id, http2.ErrCodeCancel) })); err != nil {
				t.Error(err)
			}
		},
	} {
		m := flood.NewMeter(10, false)
		var err error
		opened := 0
		for id := uint32(1); err == nil && opened < 100; id += 2 {
			if err = m.Received(frames(call(id))); err == nil {
				opened++
			}
			end(m, id)
		}
		if leaves := name == "left open"; leaves != errors.Is(err, flood.ErrFlood) || leaves && opened != 10 {
			t.Errorf("%s: %v after %d streams", name, err, opened)
		}
	}
}

// FuzzMeter: the Meter finds the same frames however the bytes are cut, and counts no more frames
// than there are.
func FuzzMeter(f *testing.F) {
	f.Add([]byte(http2.ClientPreface+string(frames(call(1)))), 7)
	f.Add(frames(func(f *http2.Framer) { ping(f); call(3)(f); answer(5)(f) }), 1)
	f.Add([]byte(strings.Repeat("\xff", 40)), 9)
	f.Fuzz(func(t *testing.T, b []byte, cut int) {
		if len(b) > 64<<10 {
			return
		}
		cut = min(max(1, cut), len(b)+1)
		whole, parts := flood.NewMeter(3, true), flood.NewMeter(3, true)
		want := whole.Received(b)
		var got error
		for rest := b; len(rest) > 0 && got == nil; {
			n := min(cut, len(rest))
			got = parts.Received(rest[:n])
			parts.Sent(nil)
			rest = rest[n:]
		}
		if (want == nil) != (got == nil) || want != nil && !errors.Is(got, flood.ErrFlood) {
			t.Errorf("whole: %v; in parts of %d bytes: %v", want, cut, got)
		}
		whole.Sent(b)
	})
}
