package ttrpc

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cloudwego/gopkg/protocol/ttheader"
	"github.com/cloudwego/netpoll"
)

const (
	// lengthField is the size of the length before each frame, in bytes.
	lengthField = 4
	// streamAt is the offset of the stream's id in a frame.
	streamAt = 8
)

// A frameReader follows the frames of a connection. It fails at a frame that is too large, before
// memory is allocated for the frame, and at a frame that opens a stream with a used id. Kitex reads
// only with Next and Skip: first the length of a frame together with the bytes before its header,
// then the header.
type frameReader struct {
	netpoll.Reader
	limit   int
	left    int                             // unread bytes of the current frame
	head    [ttheader.TTHeaderMetaSize]byte // of the current frame; if headed, its header is read next
	headed  bool
	streams streamIDs
	opened  func() error // called for each stream that is opened
}

func newFrameReader(r netpoll.Reader, limit int) *frameReader {
	return &frameReader{Reader: r, limit: limit, opened: func() error { return nil }}
}

// Next implements netpoll.Reader.
func (r *frameReader) Next(n int) ([]byte, error) {
	b, err := r.Reader.Next(n)
	if err != nil {
		return b, err
	}
	return b, r.read(b, n)
}

// Skip implements netpoll.Reader.
func (r *frameReader) Skip(n int) error {
	b, err := r.Peek(n)
	if err != nil {
		return err
	}
	if err := r.read(b, n); err != nil {
		return err
	}
	return r.Reader.Skip(n)
}

// read counts n bytes, which begin with b.
func (r *frameReader) read(b []byte, n int) error {
	if r.left == 0 {
		if len(b) < lengthField {
			return errors.New(refusedFrame + "the length of a frame was read in pieces")
		}
		size := binary.BigEndian.Uint32(b)
		if uint64(size) > uint64(r.limit) {
			return fmt.Errorf(refusedFrame+"a frame of %d bytes; at most %d are read", size, r.limit)
		}
		r.left = lengthField + int(size)
		r.headed = copy(r.head[:], b) == len(r.head) && len(b) == len(r.head)
	} else if r.headed {
		r.headed = false
		if err := r.opens(b); err != nil {
			return err
		}
	}
	if n > r.left {
		return errors.New(refusedFrame + "a frame ends within its header")
	}
	r.left -= n
	return nil
}

// opens returns an error if a frame opens a stream with a used id, or one stream too many. Kitex would
// forget the earlier stream with that id, and has no limit of streams.
func (r *frameReader) opens(header []byte) error {
	frame, err := ttheader.DecodeFromBytes(context.Background(), append(r.head[:], header...))
	if err != nil || frame.IntInfo[ttheader.FrameType] != ttheader.FrameTypeHeader {
		return nil //nolint:nilerr // Kitex reports it
	}
	if id := int32(binary.BigEndian.Uint32(r.head[streamAt:])); !r.streams.add(id) {
		return fmt.Errorf(refusedFrame+"a stream with the id %d, which an earlier stream of the connection has", id)
	}
	return r.opened()
}

const (
	// idsBehind is how far the id of a new stream may be below the highest id. Callers assign ids
	// in order, but may send streams that begin at the same time in another order.
	idsBehind = 1 << 16
	idsInWord = 64
	// Above maxWords words, add deletes the words behind the window.
	maxWords = 2 * idsBehind / idsInWord
)

// streamIDs is the set of stream ids that a connection has used. Kitex counts the streams of a
// process in an int32 that wraps around, so ids are compared by their wrapping difference:
// math.MinInt32 follows math.MaxInt32. An id too far below the highest id counts as used. The zero
// value is empty; the first id may be any number.
type streamIDs struct {
	highest int32            // the newest id
	words   map[int32]uint64 // a bit for each id; the key is the id divided by idsInWord
}

// add adds an id, and reports whether it is new.
func (s *streamIDs) add(id int32) (isNew bool) {
	switch d := id - s.highest; {
	case s.words == nil || d > idsBehind: // all earlier ids are behind the window
		s.words, s.highest = make(map[int32]uint64), id
	case d < -idsBehind:
		return false
	case d > 0:
		s.highest = id
	}
	word, bit := id>>6, uint64(1)<<(uint32(id)%idsInWord) // shifts round down
	if s.words[word]&bit != 0 {
		return false
	}
	s.words[word] |= bit
	if len(s.words) > maxWords {
		for w := range s.words {
			if s.highest-(w<<6+idsInWord-1) > idsBehind { // then the last id of the word is behind the window, too
				delete(s.words, w)
			}
		}
	}
	return true
}
