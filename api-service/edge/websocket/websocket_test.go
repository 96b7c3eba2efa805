package websocket

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/whence-dev/whence/internal/leaktest"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// TestFrames checks the three forms of a length, and that a buffer is reused.
func TestFrames(t *testing.T) {
	var e Encoder
	for _, size := range []int{0, 125, 126, 1<<16 - 1, 1 << 16, maxKept, 3} {
		payload := bytes.Repeat([]byte{'x'}, size)
		frame, n := e.End(Text, append(e.Begin(), payload...))
		if n != size || frame[0] != 0x81 {
			t.Fatalf("%d bytes: %d, %x", size, n, frame[:2])
		}
		rest := frame[2:]
		got := uint64(frame[1])
		switch got {
		case 126:
			got, rest = uint64(binary.BigEndian.Uint16(rest)), rest[2:]
		case 127:
			got, rest = binary.BigEndian.Uint64(rest), rest[8:]
		}
		if got != uint64(size) || !bytes.Equal(rest, payload) {
			t.Errorf("%d bytes: a length of %d, and %d bytes", size, got, len(rest))
		}
	}
}

func TestCodesAreUniqueAndAllowed(t *testing.T) {
	seen := map[int]streamerr.Reason{}
	for r := streamerr.Completed; r <= streamerr.Internal; r++ {
		code := Code(r)
		if other, taken := seen[code]; taken {
			t.Errorf("%v and %v have the same close code %d", other, r, code)
		}
		seen[code] = r
		if code == noCode || code == noFrame || code < 1000 || code >= 5000 {
			t.Errorf("%v: %d may not be sent", r, code)
		}
	}
}

func FuzzFrameKeepsPayload(f *testing.F) {
	f.Add([]byte("text"))
	f.Fuzz(func(t *testing.T, payload []byte) {
		if frame := frameOf(Binary, payload); !bytes.HasSuffix(frame, payload) || len(frame) > len(payload)+headerRoom {
			t.Errorf("%x: %x", payload, frame)
		}
	})
}
