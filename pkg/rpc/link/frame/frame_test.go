package frame_test

import (
	"bytes"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/whence-dev/whence/pkg/rpc/link/frame"
)

// parse decodes the payload of a frame, and encodes it again.
func parse(f frame.Frame) (again []byte, err error) {
	switch f.Kind {
	case frame.Hello:
		g, err := frame.ParseHello(f.Payload)
		return frame.AppendHello(nil, g), err
	case frame.Open:
		c, err := frame.ParseOpen(f.Payload)
		again, _ = frame.AppendOpen(nil, c)
		return again, err
	case frame.Items:
		b, at := frame.Begin(nil, frame.Items)
		for payload := f.Payload; len(payload) > 0; {
			id, message, rest, err := frame.NextItem(payload)
			if err != nil {
				return nil, err
			}
			b = append(frame.AppendItemHead(b, id, len(message)), message...)
			payload = rest
		}
		frame.Finish(b, at)
		return b, nil
	case frame.Part:
		id, left, part, err := frame.ParsePart(f.Payload)
		if err != nil {
			return nil, err
		}
		again, _ = frame.AppendPart(nil, id, append(part[:len(part):len(part)], make([]byte, min(left-len(part), 1<<20))...), len(f.Payload))
		return again, nil
	case frame.Close, frame.Reset:
		id, err := frame.ParseStream(f)
		return frame.AppendStream(nil, f.Kind, id), err
	case frame.End:
		e, err := frame.ParseEnd(f.Payload)
		again, _ = frame.AppendEnd(nil, e)
		return again, err
	case frame.Credit:
		id, n, err := frame.ParseCredit(f.Payload)
		return frame.AppendCredit(nil, id, n), err
	case frame.Ping, frame.Pong:
		n, err := frame.ParsePing(f)
		return frame.AppendPing(nil, f.Kind, n), err
	default:
		return frame.AppendGoaway(nil, string(f.Payload)), nil
	}
}

// samples are valid frames of each kind.
func samples() map[string][]byte {
	greeting := frame.Greeting{Version: frame.Version, Features: 3, Window: 1 << 16, MaxMessage: 1 << 22, Identity: "one"}
	open, _ := frame.AppendOpen(nil, frame.Call{Stream: 7, Timeout: 1500 * time.Microsecond, Method: "/a.B/C", Headers: []string{"whence-via", "client > edge", "", ""}})
	end, _ := frame.AppendEnd(nil, frame.Ending{Stream: math.MaxUint32, Status: []byte{8, 13}, Trailers: []string{"k", "v"}})
	part, _ := frame.AppendPart(nil, 300, make([]byte, 40<<10), 16<<10)
	items, at := frame.Begin(nil, frame.Items)
	for id, m := range []string{"", "x", strings.Repeat("y", 200)} {
		items = append(frame.AppendItemHead(items, uint32(id+1), len(m)), m...)
	}
	frame.Finish(items, at)
	return map[string][]byte{
		"hello": frame.AppendHello(nil, greeting), "open": open, "items": items, "part": part, "end": end,
		"close": frame.AppendStream(nil, frame.Close, 1), "reset": frame.AppendStream(nil, frame.Reset, 2),
		"credit": frame.AppendCredit(nil, 5, 1000), "ping": frame.AppendPing(nil, frame.Ping, 9), "pong": frame.AppendPing(nil, frame.Pong, 9),
		"goaway": frame.AppendGoaway(nil, "shuts down"),
	}
}

func TestFramesCrossUnchanged(t *testing.T) {
	for name, b := range samples() {
		f, n, err := frame.Decode(append(b[:len(b):len(b)], 1, 2, 3))
		if err != nil || n != len(b) {
			t.Errorf("%s: %d of %d bytes, %v", name, n, len(b), err)
			continue
		}
		again, err := parse(f)
		if err != nil || !bytes.Equal(again, b) {
			t.Errorf("%s: %x has become %x, %v", name, b, again, err)
		}
		for cut := range b {
			if _, n, err := frame.Decode(b[:cut]); n != 0 || err != nil {
				t.Errorf("%s: %d of %d bytes are a frame of %d, %v", name, cut, len(b), n, err)
			}
		}
	}
	g, err := frame.ParseHello(frameOf(t, samples()["hello"]).Payload)
	want := frame.Greeting{Version: frame.Version, Features: 3, Window: 1 << 16, MaxMessage: 1 << 22, Identity: "one"}
	if err != nil || !reflect.DeepEqual(g, want) {
		t.Error(g, err)
	}
}

func frameOf(t *testing.T, b []byte) frame.Frame {
	t.Helper()
	f, n, err := frame.Decode(b)
	if err != nil || n == 0 {
		t.Fatal(n, err)
	}
	return f
}

// TestCutPayloadsAreErrors: a payload that ends early, or has surplus bytes, is an *Error with its
// kind.
func TestCutPayloadsAreErrors(t *testing.T) {
	for name, b := range samples() {
		f := frameOf(t, b)
		if f.Kind == frame.Goaway || f.Kind == frame.Part {
			continue // any length is valid
		}
		for cut := range f.Payload {
			if f.Kind == frame.Items && cut == 0 {
				continue // no items
			}
			_, err := parse(frame.Frame{Kind: f.Kind, Payload: f.Payload[:cut]})
			if e, ok := errors.AsType[*frame.Error](err); f.Kind != frame.Items && (!ok || e.Kind != f.Kind) {
				t.Errorf("%s: %d of %d bytes: %v", name, cut, len(f.Payload), err)
			}
		}
		_, err := parse(frame.Frame{Kind: f.Kind, Payload: append(f.Payload[:len(f.Payload):len(f.Payload)], 0)})
		if _, ok := errors.AsType[*frame.Error](err); !ok && f.Kind != frame.Hello {
			t.Errorf("%s with a surplus byte: %v", name, err)
		}
	}
}

func TestEachProblemHasItsError(t *testing.T) {
	for name, test := range map[string]struct {
		bytes []byte
		want  error
	}{
		"kind 0":             {[]byte{0, 0, 0, 0}, frame.ErrUnknownKind},
		"kind 99":            {[]byte{99, 0, 0, 0}, frame.ErrUnknownKind},
		"http/2":             {[]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), frame.ErrUnknownKind},
		"16 MiB":             {[]byte{byte(frame.Items), 255, 255, 255}, frame.ErrTooLong},
		"no magic":           {[]byte{byte(frame.Hello), 2, 0, 0, 1, 2}, frame.ErrMagic},
		"stream 0":           {[]byte{byte(frame.Close), 1, 0, 0, 0}, frame.ErrNumber},
		"stream 2^35":        {[]byte{byte(frame.Close), 6, 0, 0, 0x80, 0x80, 0x80, 0x80, 0x80, 1}, frame.ErrNumber},
		"endless number":     {append([]byte{byte(frame.Close), 11, 0, 0}, bytes.Repeat([]byte{0xff}, 11)...), frame.ErrNumber},
		"no stream":          {[]byte{byte(frame.Close), 0, 0, 0}, frame.ErrTruncated},
		"item beyond frame":  {[]byte{byte(frame.Items), 2, 0, 0, 1, 9}, frame.ErrTruncated},
		"part of nothing":    {[]byte{byte(frame.Part), 2, 0, 0, 1, 5}, frame.ErrNumber},
		"part beyond":        {[]byte{byte(frame.Part), 4, 0, 0, 1, 1, 7, 7}, frame.ErrNumber},
		"no credit":          {[]byte{byte(frame.Credit), 2, 0, 0, 1, 0}, frame.ErrNumber},
		"129 headers":        {[]byte{byte(frame.Open), 5, 0, 0, 1, 0, 0, 129, 1}, frame.ErrTooMany},
		"timeout of an aeon": {append([]byte{byte(frame.Open), 12, 0, 0, 1}, append(bytes.Repeat([]byte{0xff}, 8), 1, 0, 0)...), frame.ErrNumber},
		"short ping":         {[]byte{byte(frame.Ping), 1, 0, 0, 1}, frame.ErrTruncated},
		"long ping":          {append([]byte{byte(frame.Ping), 9, 0, 0}, make([]byte, 9)...), frame.ErrSurplus},
	} {
		f, n, err := frame.Decode(test.bytes)
		if err == nil && n == 0 {
			t.Errorf("%s is not a whole frame", name)
			continue
		}
		if err == nil {
			_, err = parse(f)
		}
		if !errors.Is(err, test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestOversizedFramesAreRefused(t *testing.T) {
	long := strings.Repeat("x", frame.MaxPayload)
	if b, ok := frame.AppendOpen([]byte("before"), frame.Call{Stream: 1, Method: long}); ok || string(b) != "before" {
		t.Error("AppendOpen accepted a method name of 64 KiB")
	}
	if b, ok := frame.AppendOpen([]byte("before"), frame.Call{Stream: 1, Headers: make([]string, 2*frame.MaxPairs+2)}); ok || string(b) != "before" {
		t.Error("AppendOpen accepted 129 headers")
	}
	if b, ok := frame.AppendEnd([]byte("before"), frame.Ending{Stream: 1, Status: []byte(long)}); ok || string(b) != "before" {
		t.Error("AppendEnd accepted a status of 64 KiB")
	}
	if _, n, err := frame.Decode(frame.AppendGoaway(nil, long)); n > 2<<10 || err != nil {
		t.Error(n, err)
	}
}

// FuzzDecode checks that any bytes are frames, the beginning of a frame, or an *Error, and that a
// decoded frame is encoded to the same bytes, if its encoding is unique.
func FuzzDecode(f *testing.F) {
	for _, b := range samples() {
		f.Add(b)
	}
	f.Add([]byte{byte(frame.Items), 4, 0, 0, 0x81, 0x00, 1, 7})
	f.Fuzz(func(t *testing.T, b []byte) {
		for len(b) > 0 {
			got, n, err := frame.Decode(b)
			if err == nil && n == 0 {
				return
			}
			var again []byte
			if err == nil {
				again, err = parse(got)
			}
			if err != nil {
				if _, ok := errors.AsType[*frame.Error](err); !ok {
					t.Fatalf("%v is not a *frame.Error", err)
				}
				return
			}
			second, m, err := frame.Decode(again)
			if err != nil || m != len(again) || len(again) > n {
				t.Fatalf("%x is encoded as %x: %v", b[:n], again, err)
			}
			if third, err := parse(second); err != nil || !bytes.Equal(third, again) {
				t.Fatalf("%x is encoded as %x, then as %x: %v", b[:n], again, third, err)
			}
			b = b[n:]
		}
	})
}

// TestLongTimeoutIsNone: a timeout that ParseOpen would refuse is sent as no timeout.
func TestLongTimeoutIsNone(t *testing.T) {
	b, ok := frame.AppendOpen(nil, frame.Call{Stream: 1, Timeout: math.MaxInt64, Method: "/a.B/C"})
	f, _, err := frame.Decode(b)
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	if c, err := frame.ParseOpen(f.Payload); err != nil || c.Timeout != 0 {
		t.Error(c.Timeout, err)
	}
}
