package websocket

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// sent returns a frame as a client sends it.
func sent(first byte, payload string) []byte {
	b := []byte{first}
	switch n := len(payload); {
	case n < 126:
		b = append(b, 0x80|byte(n))
	case n < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, 0x80|126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, 0x80|127), uint64(n))
	}
	mask := [4]byte{'m', 'a', 's', 'k'}
	b = append(b, mask[:]...)
	for i := range payload {
		b = append(b, payload[i]^mask[i&3])
	}
	return b
}

// parseAll parses bytes in pieces, all at one time, and returns what was found as text.
func parseAll(p *parser, b []byte, piece int, now time.Time) (found string, err error) {
	var all strings.Builder
	var message []byte
	for b = bytes.Clone(b); len(b) > 0 && err == nil; {
		var taken int
		var data []byte
		var what event
		taken, data, what, err = p.take(b[:min(piece, len(b))], now)
		if b = b[taken:]; what == part || what == whole {
			message = append(message, data...)
		}
		switch what {
		case whole:
			fmt.Fprintf(&all, "%d:%s ", p.kind, message)
			message = nil
		case control:
			fmt.Fprintf(&all, "%d!%s ", p.opcode(), data)
		case more, part:
		}
	}
	return all.String(), err
}

// TestFramesOfClients checks what is found in the bytes of a client, in whichever pieces they arrive.
func TestFramesOfClients(t *testing.T) {
	long, limit := strings.Repeat("x", 1<<16), int64(1<<16+10)
	for name, c := range map[string]struct {
		frames [][]byte
		found  string
		code   int // of the violation; 0 for none
	}{
		"a message":               {[][]byte{sent(0x81, "hello")}, "1:hello ", 0},
		"an empty message":        {[][]byte{sent(0x82, "")}, "2: ", 0},
		"lengths":                 {[][]byte{sent(0x81, long[:125]), sent(0x81, long[:126]), sent(0x81, long)}, "1:" + long[:125] + " 1:" + long[:126] + " 1:" + long + " ", 0},
		"fragments with a ping":   {[][]byte{sent(0x01, "hel"), sent(0x89, "p"), sent(0x00, ""), sent(0x80, "lo")}, "9!p 1:hello ", 0},
		"a close":                 {[][]byte{sent(0x88, "\x03\xe8bye")}, "8!\x03\xe8bye ", 0},
		"too big":                 {[][]byte{sent(0x81, long+long[:11])}, "", tooBig},
		"too big in fragments":    {[][]byte{sent(0x01, long), sent(0x80, long[:11])}, "", tooBig},
		"a huge length":           {[][]byte{{0x82, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4}}, "", tooBig},
		"no mask":                 {[][]byte{{0x81, 0x00}}, "", brokenFrames},
		"a reserved bit":          {[][]byte{sent(0xc1, "x")}, "", brokenFrames},
		"an opcode":               {[][]byte{sent(0x83, "x")}, "", brokenFrames},
		"a long ping":             {[][]byte{sent(0x89, long[:126])}, "", brokenFrames},
		"a ping in fragments":     {[][]byte{sent(0x09, "x")}, "", brokenFrames},
		"a message in a message":  {[][]byte{sent(0x01, "x"), sent(0x81, "y")}, "", brokenFrames},
		"a continuation of none":  {[][]byte{sent(0x80, "x")}, "", brokenFrames},
		"a message after another": {[][]byte{sent(0x01, "a"), sent(0x80, "b"), sent(0x82, "c")}, "1:ab 2:c ", 0},
	} {
		for _, piece := range []int{1, 3, 1 << 20} {
			p := parser{limit: limit}
			found, err := parseAll(&p, bytes.Join(c.frames, nil), piece, time.Unix(1, 0))
			var wrong *violation
			if errors.As(err, &wrong); wrong == nil {
				wrong = new(violation)
			}
			if found != c.found || wrong.code != c.code {
				t.Errorf("%s, in pieces of %d: %.60q %v, want %.60q and the code %d", name, piece, found, err, c.found, c.code)
			}
		}
	}
}

// TestFramesWithoutDataAreBounded: messages, and a few frames without data in between, may go on for
// ever; frames without data may not.
func TestFramesWithoutDataAreBounded(t *testing.T) {
	for name, c := range map[string]struct {
		frame []byte
		every time.Duration // between the frames
		want  error
	}{
		"messages":        {sent(0x81, "hello"), 0, nil},
		"large messages":  {sent(0x82, strings.Repeat("x", 256)), 0, nil},
		"empty fragments": {sent(0x00, ""), 0, errIdleFrames},
		"pings":           {sent(0x89, "ping"), 0, errIdleFrames},
		"slow pings":      {sent(0x89, "ping"), 2 * idleTime, nil},
		"fast pings":      {sent(0x89, "ping"), idleTime / 2, errIdleFrames},
	} {
		for _, piece := range []int{1, 3, 1000} {
			p := parser{limit: 1000}
			now := time.Unix(1, 0)
			var err error
			if c.frame[0] == 0 {
				_, err = parseAll(&p, sent(0x01, "x"), piece, now)
			}
			for i := 0; i < 10*maxIdle && err == nil; i++ {
				now = now.Add(c.every)
				_, err = parseAll(&p, c.frame, piece, now)
			}
			if !errors.Is(err, c.want) {
				t.Errorf("%s, in pieces of %d: %v, want %v", name, piece, err, c.want)
			}
		}
	}
}

// TestCloseFrames checks the codes that a client may send.
func TestCloseFrames(t *testing.T) {
	for payload, want := range map[string]int{
		"": noCode, "\x03\xe8": 1000, "\x03\xf5": 1013, "\x0f\xa0bye": 4000, // allowed
		"\x03": 0, "\x03\xed": 0, "\x03\xec": 0, "\x00\x01": 0, "\x07\xd0": 0, "\x13\x88": 0, "\x03\xe8\xff": 0,
	} {
		err := closed([]byte(payload))
		var left *closeError
		if errors.As(err, &left); left == nil {
			left = new(closeError)
		}
		if left.code != want {
			t.Errorf("%q: %v, want the code %d", payload, err, want)
		}
	}
}

// FuzzParser checks that the pieces in which frames arrive change nothing.
func FuzzParser(f *testing.F) {
	f.Add(bytes.Join([][]byte{sent(0x01, "hel"), sent(0x89, "p"), sent(0x80, "lo"), sent(0x88, "")}, nil), uint8(2))
	f.Add(bytes.Join([][]byte{sent(0x82, strings.Repeat("x", 200)), {0x82, 0xff, 0, 0, 0, 0, 0, 0, 0, 1, 1, 2, 3, 4, 5}}, nil), uint8(1))
	f.Fuzz(func(t *testing.T, b []byte, piece uint8) {
		whole, pieces := parser{limit: 1000}, parser{limit: 1000}
		now := time.Unix(1, 0)
		first, firstErr := parseAll(&whole, b, len(b)+1, now)
		second, secondErr := parseAll(&pieces, b, int(piece)+1, now)
		if first != second || fmt.Sprint(firstErr) != fmt.Sprint(secondErr) {
			t.Errorf("whole: %q %v; in pieces: %q %v", first, firstErr, second, secondErr)
		}
	})
}
