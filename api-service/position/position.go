// Package position records the part of an answer that readers have received, so that another
// instance can continue the answer exactly after that part.
//
// Each delta in the replay log of a stream has a note, which AppendNote makes: the ids of the delta's
// tokens, and the bytes of its text. Read adds up the notes of a log.
package position

import (
	"encoding/binary"
	"errors"
	"iter"

	"google.golang.org/protobuf/proto"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
)

// A Choice is the part of one choice that readers have received.
type Choice struct {
	End             *chatv1.ChoiceEnd // nil until the choice has ended, and if there is only one choice
	IDs             []uint32
	Text, Reasoning int            // bytes
	Arguments       map[uint32]int // bytes, by the number of the tool call
}

// Kinds of notes. The first byte of a note is its kind.
const (
	noteDelta   = 'd' // the numbers of appendDelta
	noteEnd     = 'e' // a ChoiceEnd
	noteStart   = 's' // the beginning of a generation, which has no part of the answer
	noteUnknown = 'x' // a delta after which no instance can continue the answer
)

// AppendNote appends the note of an item that is a Started, a Delta or a ChoiceEnd.
func AppendNote(b []byte, out *chatv1.GenerateResponse) []byte {
	switch m := out.GetMessage().(type) {
	case *chatv1.GenerateResponse_Started:
		return append(b, noteStart)
	case *chatv1.GenerateResponse_Delta:
		d := m.Delta
		if d.GetRemainder() || d.GetTokens() > 0 && len(d.GetIds()) == 0 {
			return append(b, noteUnknown)
		}
		return appendDelta(append(b, noteDelta), d)
	case *chatv1.GenerateResponse_ChoiceEnd:
		if encoded, err := (proto.MarshalOptions{}).MarshalAppend(append(b, noteEnd), m.ChoiceEnd); err == nil {
			return encoded
		}
	}
	return append(b, noteUnknown)
}

// appendDelta appends: choice, bytes of text, bytes of reasoning, number of pieces of tool calls,
// then call and bytes of arguments of each piece, and the ids of the tokens.
func appendDelta(b []byte, d *chatv1.Delta) []byte {
	b = binary.AppendUvarint(b, uint64(d.GetChoice()))
	b = binary.AppendUvarint(b, uint64(len(d.GetText())))
	b = binary.AppendUvarint(b, uint64(len(d.GetReasoning())))
	b = binary.AppendUvarint(b, uint64(len(d.GetToolCalls())))
	for _, c := range d.GetToolCalls() {
		b = binary.AppendUvarint(b, uint64(c.GetIndex()))
		b = binary.AppendUvarint(b, uint64(len(c.GetArguments())))
	}
	for _, id := range d.GetIds() {
		b = binary.AppendUvarint(b, uint64(id))
	}
	return b
}

// errUnknown reports a log whose notes do not suffice to continue the stream.
var errUnknown = errors.New("the events do not contain all of their token ids")

// Read returns the part of an answer with the given number of choices that the notes of its deltas
// describe. It fails if the answer cannot be continued exactly.
func Read(choices int, notes iter.Seq[string]) ([]Choice, error) {
	all := make([]Choice, choices)
	for note := range notes {
		if note == "" {
			return nil, errUnknown
		}
		switch r := (reader{rest: []byte(note[1:])}); note[0] {
		case noteStart:
		case noteDelta:
			r.delta(all)
			if r.failed {
				return nil, errUnknown
			}
		case noteEnd:
			end := &chatv1.ChoiceEnd{}
			if proto.Unmarshal(r.rest, end) != nil || int(end.GetChoice()) >= len(all) {
				return nil, errUnknown
			}
			all[end.GetChoice()].End = end
		default:
			return nil, errUnknown
		}
	}
	return all, nil
}

// A reader reads the numbers of one note.
type reader struct {
	rest   []byte
	failed bool
}

// maxNumber bounds each number of a note: choices, bytes of a log, ids of tokens.
const maxNumber = 1<<32 - 1

func (r *reader) number() uint64 {
	n, size := binary.Uvarint(r.rest)
	if size <= 0 || n > maxNumber {
		r.failed, r.rest = true, nil
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

// delta adds the part that a note of a delta describes.
func (r *reader) delta(all []Choice) {
	choice := r.number()
	if choice >= uint64(len(all)) {
		r.failed = true
		return
	}
	c := &all[choice]
	c.Text += int(r.number())
	c.Reasoning += int(r.number())
	for calls := r.number(); calls > 0 && !r.failed; calls-- {
		if c.Arguments == nil {
			c.Arguments = map[uint32]int{}
		}
		c.Arguments[uint32(r.number())] += int(r.number())
	}
	for len(r.rest) > 0 {
		if id := r.number(); !r.failed {
			c.IDs = append(c.IDs, uint32(id))
		}
	}
}
