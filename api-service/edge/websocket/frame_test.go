package websocket

import (
	"errors"
	"testing"
	"time"
)

// scanAll scans bytes in pieces, all at one time.
func scanAll(s *scanner, b []byte, piece int, now time.Time) error {
	for len(b) > 0 {
		n := min(piece, len(b))
		if err := s.scan(b[:n], now); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// TestFramesWithoutDataAreBounded: messages, and a few frames without data in between, may go on for
// ever; frames without data may not.
func TestFramesWithoutDataAreBounded(t *testing.T) {
	const (
		text     = "\x81\x85abcd\x00\x00\x00\x00\x00"
		large    = "\x82\xfe\x01\x00abcd" // with 256 bytes
		huge     = "\x82\xff\x00\x00\x00\x00\x00\x00\x01\x00abcd"
		fragment = "\x00\x80abcd"
		ping     = "\x89\x84abcdabcd"
	)
	data := string(make([]byte, 256))
	for name, c := range map[string]struct {
		frame string
		every time.Duration // between the frames
		want  error
	}{
		"messages":        {text, 0, nil},
		"large messages":  {large + data, 0, nil},
		"huge messages":   {huge + data, 0, nil},
		"empty fragments": {fragment, 0, errIdleFrames},
		"pings":           {ping, 0, errIdleFrames},
		"slow pings":      {ping, 2 * idleTime, nil},
		"fast pings":      {ping, idleTime / 2, errIdleFrames},
	} {
		for _, piece := range []int{1, 3, 1000} {
			var s scanner
			var err error
			now := time.Unix(1, 0)
			for i := 0; i < 10*maxIdle && err == nil; i++ {
				now = now.Add(c.every)
				err = scanAll(&s, []byte(c.frame), piece, now)
			}
			if !errors.Is(err, c.want) {
				t.Errorf("%s, in pieces of %d: %v, want %v", name, piece, err, c.want)
			}
		}
	}
}

// FuzzScanner checks that the pieces in which frames arrive change nothing.
func FuzzScanner(f *testing.F) {
	f.Add([]byte("\x81\x85abcdhello\x89\x80abcd\x00\x80abcd"), uint8(2))
	f.Add([]byte("\x82\xfe\x00\x01abcdx\x82\xff\x00\x00\x00\x00\x00\x00\x00\x01abcdx"), uint8(1))
	f.Fuzz(func(t *testing.T, b []byte, piece uint8) {
		var whole, pieces scanner
		now := time.Unix(1, 0)
		first, second := scanAll(&whole, b, len(b)+1, now), scanAll(&pieces, b, int(piece)+1, now)
		if !errors.Is(second, first) || first == nil && whole != pieces {
			t.Errorf("whole: %+v %v; in pieces: %+v %v", whole, first, pieces, second)
		}
	})
}
