package network

import (
	"slices"

	"github.com/whence-dev/whence/pkg/rpc/link/frame"
)

// unopened is the number of a stream that no peer opens.
const unopened = 1 << 20

// forgeries are frames that end a link, from either side: they are malformed, or the protocol forbids
// them at this point. live is the number of a stream that both ends know, unless it has just ended; then the frame
// of a stream that was never opened follows.
var forgeries = []func(live uint32) []byte{
	func(uint32) []byte { return []byte{99, 0, 0, 0} },
	func(uint32) []byte { return []byte{byte(frame.Items), 0xff, 0xff, 0xff} },
	func(uint32) []byte { return raw(frame.Open, 5) },
	func(uint32) []byte { return raw(frame.Open, 0, 0, 0, 0) },
	func(uint32) []byte { return raw(frame.Open, 5, 0, 1, '/', 0xff, 0x7f) },
	func(uint32) []byte {
		return raw(frame.Open, 5, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 0, 0)
	},
	func(uint32) []byte { b, _ := frame.AppendOpen(nil, frame.Call{Stream: 1, Method: "/a/B"}); return b },
	func(uint32) []byte { return raw(frame.Items, 5, 100, 'x') },
	func(uint32) []byte { return raw(frame.Items, slices.Repeat([]byte{0xff}, 11)...) },
	func(uint32) []byte { b, _ := frame.AppendPart(nil, unopened, []byte("xyz"), 100); return b },
	func(live uint32) []byte { return raw(frame.Part, byte(live%100+1), 1, 'x', 'y') },
	func(live uint32) []byte {
		b, _ := frame.AppendPart(nil, live, make([]byte, 100), 20)
		return append(b, raw(frame.Part, byte(live), 50, 'x')...)
	},
	func(live uint32) []byte {
		b, _ := frame.AppendPart(nil, live, make([]byte, 100), 20)
		return append(b, raw(frame.Items, byte(live), 1, 'x')...)
	},
	func(live uint32) []byte { return frame.AppendStream(nil, frame.Close, live) },
	func(uint32) []byte { return raw(frame.Reset, 1, 1) },
	func(uint32) []byte { return frame.AppendStream(nil, frame.Reset, unopened) },
	func(uint32) []byte { return raw(frame.End, 1, 0, 0, 0) },
	func(uint32) []byte { b, _ := frame.AppendEnd(nil, frame.Ending{Stream: unopened}); return b },
	func(live uint32) []byte { return raw(frame.Credit, byte(live%100+1), 0) },
	func(live uint32) []byte { return frame.AppendCredit(nil, live, 1<<30) },
	func(uint32) []byte { return frame.AppendCredit(nil, unopened, 1) },
	func(uint32) []byte { return raw(frame.Ping, 1) },
	func(uint32) []byte { return raw(frame.Pong, make([]byte, 9)...) },
	func(uint32) []byte {
		return frame.AppendHello(nil, frame.Greeting{Version: 1, Window: 1, MaxMessage: 1})
	},
	func(uint32) []byte { return raw(frame.Hello, 'x') },
}

// forgery returns a frame that the protocol forbids. A last frame ends the link in any case.
func forgery(which int, live uint32) []byte {
	return append(forgeries[which%len(forgeries)](live), frame.AppendStream(nil, frame.Close, unopened)...)
}

// raw returns a frame with a payload.
func raw(kind frame.Kind, payload ...byte) []byte {
	b, at := frame.Begin(nil, kind)
	b = append(b, payload...)
	frame.Finish(b, at)
	return b
}
