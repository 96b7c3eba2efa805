package ttrpc

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/cloudwego/netpoll"
)

// FuzzFrames reads arbitrary bytes as Kitex does: the length of a frame together with the bytes
// before its header, the header, and the rest. The reader never passes on more bytes than the
// frame has, and no frame above the limit.
func FuzzFrames(f *testing.F) {
	frame := binary.BigEndian.AppendUint32(nil, 14)
	frame = append(frame, 0x10, 0, 0, 2, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0)
	f.Add(frame)
	f.Add(append(bytes.Clone(frame), frame...)) // the same stream twice
	f.Add(frame[:9])
	f.Add([]byte("\xff\xff\xff\xff"))
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		const limit = 1 << 10
		r := newFrameReader(netpoll.NewReader(bytes.NewReader(b)), limit)
		for {
			head, err := r.Next(len(r.head))
			if err != nil {
				return
			}
			size := binary.BigEndian.Uint32(head)
			if size > limit {
				t.Fatalf("a frame of %d bytes was passed on", size)
			}
			if want := lengthField + int(size) - len(r.head); r.left != want {
				t.Fatalf("%d bytes of the frame are left, want %d", r.left, want)
			}
			header := min(r.left, 4*int(binary.BigEndian.Uint16(head[12:])))
			if header > 0 {
				if _, err := r.Next(header); err != nil {
					return
				}
			}
			if r.left == 0 {
				continue
			}
			if err := r.Skip(r.left); err != nil {
				return
			}
		}
	})
}
