package follow

import (
	"strconv"
	"strings"

	"github.com/whence-dev/whence/pkg/streamerr"
)

// CursorHeader names the last event that a reader has received. EventSource sends it when it
// reconnects.
const CursorHeader = "Last-Event-ID"

// A Cursor is the id of an event: the epoch of its log, and its number there.
type Cursor struct {
	Epoch string
	Seq   uint64
}

// String returns "epoch.seq", the form that Follow writes.
func (c Cursor) String() string { return c.Epoch + "." + strconv.FormatUint(c.Seq, 10) }

// ParseCursor parses the id of an event.
func ParseCursor(text string) (Cursor, error) {
	epoch, digits, _ := strings.Cut(text, ".")
	seq, err := strconv.ParseUint(digits, 10, 64)
	c := Cursor{epoch, seq}
	if err != nil || epoch == "" || c.String() != text {
		return Cursor{}, streamerr.InvalidParam(CursorHeader, "%.64q is not the id of an event", text)
	}
	return c, nil
}
