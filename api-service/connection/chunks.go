package connection

import (
	"errors"
	"math"
)

const (
	// maxFraming bounds the bytes of a chunked body that are not data, besides a share for each
	// chunk: sizes, extensions and line ends. The bound is that of net/http.
	maxFraming = 16 << 10
	// chunkShare is the framing that each chunk may have; each byte of data adds dataShare.
	chunkShare = 16
	dataShare  = 2
	// maxChunk bounds the announced size of a chunk, in bytes.
	maxChunk = math.MaxInt64 >> 8
)

// Errors of chunked bodies.
var (
	errBrokenChunks    = errors.New("the chunked body is malformed")
	errFraming         = errors.New("the chunked body has too many bytes that are not data")
	errTrailerTooLarge = errors.New("the trailer of the body is too large")
)

// chunks decodes a chunked body (RFC 9112, section 7.1). It is a pure machine, which is fed with the
// bytes as they arrive and looks at each byte once. It ignores chunk extensions and drops the
// trailer, as a server may. A bare LF or CR is an error, because proxies disagree about them.
type chunks struct {
	state   chunkState
	left    int64 // data of the chunk that has not been decoded
	framing int   // framing bytes beyond the shares
	trailer int   // bytes of the trailer
	fields  int   // of the trailer
}

type chunkState int

const (
	sizeBegin  chunkState = iota // before the first digit of a size
	size                         // in the digits
	afterSize                    // white space before the extension or the line end
	extension                    // skipped up to the line end
	sizeEnd                      // the LF of a size line
	data                         //
	dataCR                       // the CR after the data
	dataLF                       // the LF after the data
	fieldBegin                   // a field of the trailer, or the CR of the end
	fieldName                    // up to the colon
	fieldValue                   // up to the line end
	fieldEnd                     // the LF of a field
	bodyEnd                      // the LF of the end
	complete                     // the body is complete
)

// decode decodes bytes of src into dst. It returns the numbers of bytes that it has taken from src
// and put into dst. It stops when dst is full, src is empty, or the body is complete; bytes after the
// body are not taken.
func (c *chunks) decode(dst, src []byte) (taken, put int, err error) {
	for taken < len(src) && c.state != complete {
		if c.state == data {
			n := copy(dst[put:], src[taken:taken+int(min(c.left, int64(len(src)-taken)))])
			if n == 0 {
				return taken, put, nil // dst is full
			}
			taken, put, c.left = taken+n, put+n, c.left-int64(n)
			if c.left == 0 {
				c.state = dataCR
			}
			continue
		}
		if err := c.frame(src[taken]); err != nil {
			return taken, put, err
		}
		taken++
	}
	return taken, put, nil
}

// frame takes a byte that is not data, and counts it.
func (c *chunks) frame(b byte) error {
	if c.state >= fieldBegin {
		if c.trailer++; c.trailer > MaxHeader {
			return errTrailerTooLarge
		}
		return c.trail(b)
	}
	if c.framing++; c.framing > maxFraming {
		return errFraming
	}
	return c.line(b)
}

// line takes a byte of a chunk's size line, or of the line end after its data.
func (c *chunks) line(b byte) error {
	switch c.state {
	case sizeBegin, size:
		if d, ok := digit(b); ok {
			c.state = size
			if c.left = c.left<<4 | d; c.left > maxChunk {
				return errBrokenChunks
			}
			return nil
		}
		if c.state == sizeBegin {
			return errBrokenChunks
		}
		return c.afterDigits(b)
	case afterSize:
		return c.afterDigits(b)
	case extension:
		return c.lineText(b, sizeEnd)
	case sizeEnd:
		c.state = data
		if c.left == 0 {
			c.state = fieldBegin
		} else if share := chunkShare + dataShare*c.left; share < int64(c.framing) {
			c.framing -= int(share)
		} else {
			c.framing = 0
		}
		return only(b, '\n')
	case dataCR:
		c.state = dataLF
		return only(b, '\r')
	default: // dataLF
		c.state = sizeBegin
		return only(b, '\n')
	}
}

// afterDigits takes a byte after the digits of a size.
func (c *chunks) afterDigits(b byte) error {
	switch b {
	case '\r':
		c.state = sizeEnd
	case ';':
		c.state = extension
	case ' ', '\t':
		c.state = afterSize
	default:
		return errBrokenChunks
	}
	return nil
}

// trail takes a byte of the trailer.
func (c *chunks) trail(b byte) error {
	switch c.state {
	case fieldBegin:
		if b == '\r' {
			c.state = bodyEnd
			return nil
		}
		if c.fields++; c.fields > MaxFields {
			return errTrailerTooLarge
		}
		c.state = fieldName
		if !token(b) {
			return errBrokenChunks
		}
	case fieldName:
		if b == ':' {
			c.state = fieldValue
		} else if !token(b) {
			return errBrokenChunks
		}
	case fieldValue:
		return c.lineText(b, fieldEnd)
	case fieldEnd:
		c.state = fieldBegin
		return only(b, '\n')
	default: // bodyEnd
		c.state = complete
		return only(b, '\n')
	}
	return nil
}

// only returns an error unless a byte is the one that must stand here.
func only(b, want byte) error {
	if b != want {
		return errBrokenChunks
	}
	return nil
}

// lineText reads a byte of a line's text. After a carriage return, the state is end.
func (c *chunks) lineText(b byte, end chunkState) error {
	if b == '\r' {
		c.state = end
		return nil
	}
	return printable(b)
}

// printable returns an error for a byte that may not stand in a line.
func printable(b byte) error {
	if b < ' ' && b != '\t' || b == 0x7f {
		return errBrokenChunks
	}
	return nil
}

// digit returns the value of a hexadecimal digit.
func digit(b byte) (value int64, ok bool) {
	switch {
	case '0' <= b && b <= '9':
		return int64(b - '0'), true
	case 'a' <= b|0x20 && b|0x20 <= 'f':
		return int64(b|0x20-'a') + 10, true
	}
	return 0, false
}
