package client

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"io"
)

// The opcodes of frames.
const (
	textFrame  = 1
	closeFrame = 8
	pingFrame  = 9
	pongFrame  = 10
)

// readSocket reads the events of a kept stream over a WebSocket. heard is that of readEvents.
func (v *Visit) readSocket(a *Answer, heard func(n int) (more bool)) {
	v.shuts = true
	for {
		opcode, payload, err := readFrame(v.in)
		if err != nil {
			return
		}
		switch opcode {
		case textFrame:
			var m struct {
				ID, Event string
				Data      json.RawMessage
			}
			if json.Unmarshal(payload, &m) != nil {
				a.wrong("there is no JSON in " + string(payload))
			}
			a.kept(m.ID, m.Event, string(m.Data))
			if !heard(len(a.Events)) {
				return
			}
		case pingFrame:
			v.write(frame(pongFrame, payload))
		case closeFrame:
			v.write(frame(closeFrame, payload[:min(2, len(payload))]))
			a.Clean = true
			_, _ = v.in.ReadByte() // until the other side closes the connection
			return
		default:
			a.wrong("there is a frame of another kind")
		}
	}
}

// readFrame reads a frame of the server.
func readFrame(in io.Reader) (opcode byte, payload []byte, err error) {
	var head [2]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		return 0, nil, err
	}
	size := uint64(head[1])
	var long [8]byte
	switch size {
	case 126:
		_, err = io.ReadFull(in, long[6:])
		size = binary.BigEndian.Uint64(long[:])
	case 127:
		_, err = io.ReadFull(in, long[:])
		size = binary.BigEndian.Uint64(long[:])
	}
	if err != nil {
		return 0, nil, err
	}
	var b bytes.Buffer
	_, err = io.CopyN(&b, in, int64(size))
	return head[0] & 0xf, b.Bytes(), err
}

// frame returns a frame of the client, which is short, and masked with zeros.
func frame(opcode byte, payload []byte) []byte {
	return append([]byte{0x80 | opcode, 0x80 | byte(len(payload)), 0, 0, 0, 0}, payload...)
}
