package upstream

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"
)

// A conn is one end of a ZMTP 3.0 connection without security: the part of ZeroMQ that SUB and
// DEALER sockets with one peer need. It accepts messages of bounded size, and detects when its peer
// is gone. https://rfc.zeromq.org/spec/23
type conn struct {
	net.Conn
	left int // bytes that the rest of the current message may have
}

const (
	flagMore, flagLong, flagCommand = 1, 2, 4
	// maxMessage bounds a message, in bytes: a batch of events has five bytes per token, and a step
	// reads some thousand tokens.
	maxMessage = 16 << 20
	maxFrames  = 8
)

// handshakeTimeout bounds the time that a peer which does not speak ZeroMQ can take. Tests change it.
var handshakeTimeout = 5 * time.Second

// The types of our sockets.
const (
	sub    = "SUB"
	dealer = "DEALER"
)

// peers lists the socket types that each of our sockets can talk to.
var peers = map[string][]string{sub: {"PUB", "XPUB"}, dealer: {"ROUTER"}}

// dial connects as a socket of a type. ctx bounds the handshake, not the connection.
func dial(ctx context.Context, addr, socket string) (*conn, error) {
	d := net.Dialer{Timeout: handshakeTimeout}
	nc, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return greet(ctx, nc, socket)
}

// greet performs the handshake on a connection that either side has dialed, and closes the
// connection if it fails. ctx bounds the handshake, not the connection.
func greet(ctx context.Context, nc net.Conn, socket string) (*conn, error) {
	undo := context.AfterFunc(ctx, func() { _ = nc.Close() })
	defer undo()
	c := &conn{Conn: nc}
	if err := c.handshake(socket); err != nil {
		_ = nc.Close()
		return nil, fmt.Errorf("ZMTP handshake: %w", err)
	}
	return c, nil
}

func (c *conn) handshake(socket string) error {
	if err := c.SetDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return err
	}
	var greeting [64]byte
	greeting[0], greeting[9], greeting[10] = 0xff, 0x7f, 3 // signature and version
	copy(greeting[12:], "NULL")
	if _, err := c.Write(greeting[:]); err != nil {
		return err
	}
	var theirs [64]byte
	if _, err := io.ReadFull(c, theirs[:]); err != nil {
		return err
	}
	if theirs[0] != 0xff || theirs[9]&1 == 0 || theirs[10] < 3 {
		return errors.New("the peer does not speak ZMTP 3")
	}
	if string(theirs[12:17]) != "NULL\x00" {
		return fmt.Errorf("the peer requires the security mechanism %.20q", theirs[12:32])
	}
	ready := append([]byte("\x05READY\x0bSocket-Type\x00\x00\x00"), byte(len(socket)))
	if err := c.frame(flagCommand, append(ready, socket...)); err != nil {
		return err
	}
	c.left = maxMessage
	flags, body, err := c.next()
	if err != nil {
		return err
	}
	if flags&flagCommand == 0 || len(body) < 6 || string(body[:6]) != "\x05READY" {
		return errors.New("the peer is not ready")
	}
	if theirs := socketType(body[6:]); theirs != "" && !slices.Contains(peers[socket], theirs) {
		return fmt.Errorf("the peer is a %.16q socket; %s talks to %s", theirs, socket, strings.Join(peers[socket], " and "))
	}
	return c.SetDeadline(time.Time{})
}

// socketType returns the Socket-Type of a READY command's properties, or "".
func socketType(properties []byte) string {
	for len(properties) > 0 {
		name, rest, ok := cut(properties, 1)
		if !ok {
			return ""
		}
		value, after, ok := cut(rest, 4)
		if !ok {
			return ""
		}
		if strings.EqualFold(string(name), "Socket-Type") {
			return string(value)
		}
		properties = after
	}
	return ""
}

// cut splits b after a field with a length prefix of n bytes.
func cut(b []byte, n int) (field, rest []byte, ok bool) {
	if len(b) < n {
		return nil, nil, false
	}
	size := uint64(0)
	for _, digit := range b[:n] {
		size = size<<8 | uint64(digit)
	}
	if b = b[n:]; size > uint64(len(b)) {
		return nil, nil, false
	}
	return b[:size], b[size:], true
}

// send sends a message.
func (c *conn) send(frames ...[]byte) error {
	for i, f := range frames {
		flags := byte(0)
		if i < len(frames)-1 {
			flags = flagMore
		}
		if err := c.frame(flags, f); err != nil {
			return err
		}
	}
	return nil
}

// frame sends one short frame.
func (c *conn) frame(flags byte, body []byte) error {
	if len(body) > 255 {
		return fmt.Errorf("a frame of %d bytes is too long", len(body))
	}
	_, err := c.Write(append([]byte{flags, byte(len(body))}, body...))
	return err
}

// receive returns the frames of the next message.
func (c *conn) receive() (frames [][]byte, err error) {
	c.left = maxMessage
	for {
		flags, body, err := c.next()
		switch {
		case err != nil:
			return nil, err
		case flags&flagCommand != 0:
			if err := c.pong(body); err != nil {
				return nil, err
			}
			continue
		case len(frames) == maxFrames:
			return nil, fmt.Errorf("a message has more than %d frames", maxFrames)
		}
		if frames = append(frames, body); flags&flagMore == 0 {
			return frames, nil
		}
	}
}

// pong answers a PING, because peers close connections that do not answer. It ignores other
// commands.
func (c *conn) pong(command []byte) error {
	asked, ok := bytes.CutPrefix(command, []byte("\x04PING"))
	if !ok || len(asked) < 2 {
		return nil
	}
	// The ping's context follows its time to live, and must be sent back.
	return c.frame(flagCommand, append([]byte("\x04PONG"), asked[2:]...))
}

// next reads a frame.
func (c *conn) next() (flags byte, body []byte, err error) {
	var head [9]byte
	if _, err := io.ReadFull(c, head[:2]); err != nil {
		return 0, nil, err
	}
	size := uint64(head[1])
	if head[0]&flagLong != 0 {
		if _, err := io.ReadFull(c, head[2:]); err != nil {
			return 0, nil, err
		}
		size = binary.BigEndian.Uint64(head[1:])
	}
	if size > uint64(c.left) {
		return 0, nil, fmt.Errorf("a message has more than %d bytes", maxMessage)
	}
	c.left -= int(size)
	body = make([]byte, size)
	_, err = io.ReadFull(c, body)
	return head[0], body, err
}
