package follow

import (
	"strconv"
	"strings"

	"github.com/whence-dev/whence/pkg/streamerr"
)

// CursorHeader says which event a reader has had last. EventSource sends it when it reconnects.
const CursorHeader = "Last-Event-ID"

// A Cursor is an event's id: which log of the stream it is in, and its number there.
type Cursor struct {
	Epoch string
	Seq   uint64
}

// String returns "epoch.seq".
func (c Cursor) String() string { return c.Epoch + "." + strconv.FormatUint(c.Seq, 10) }

// ParseCursor reads what String writes.
func ParseCursor(text string) (Cursor, error) {
	epoch, digits, _ := strings.Cut(text, ".")
	seq, err := strconv.ParseUint(digits, 10, 64)
	c := Cursor{epoch, seq}
	if err != nil || epoch == "" || c.String() != text {
		return Cursor{}, streamerr.InvalidParam(CursorHeader, "%.64q is no event's id", text)
	}
	return c, nil
}
