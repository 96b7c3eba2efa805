package ledger

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"strings"

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
)

// A Cursor is a position in the list of live streams, after the stream that it names. The zero
// value is the start of the list.
type Cursor struct {
	began int64 // nanoseconds since 1970
	id    string
}

// CursorOf returns the position after a stream.
func CursorOf(r *streamv1.Record) Cursor {
	return Cursor{r.GetBegan().AsTime().UnixNano(), r.GetStreamId()}
}

// String returns the input of ParseCursor, or "" for the start of the list.
func (c Cursor) String() string {
	if c == (Cursor{}) {
		return ""
	}
	return strconv.FormatInt(c.began, 36) + "." + c.id
}

// ParseCursor parses the output of String.
func ParseCursor(word string) (Cursor, error) {
	if word == "" {
		return Cursor{}, nil
	}
	began, id, _ := strings.Cut(word, ".")
	at, err := strconv.ParseInt(began, 36, 64)
	if err != nil || id == "" {
		return Cursor{}, errors.New("the cursor is not a position in the list of live streams")
	}
	return Cursor{at, id}, nil
}

func (c Cursor) compare(other Cursor) int {
	return cmp.Or(cmp.Compare(c.began, other.began), cmp.Compare(c.id, other.id))
}

// Live returns the live streams, oldest first.
func (l *Ledger) Live() []*streamv1.Record {
	live, _ := l.LiveAfter(Cursor{}, 0)
	return live
}

// LiveAfter returns at most limit live streams after a position in their list, oldest first. A
// limit of 0 means no limit. next is the position after the last of them, or the zero value if no
// more follow. A new stream is on a later page, and a stream that runs all the time is on exactly
// one page. If owners are given, LiveAfter returns only their streams.
func (l *Ledger) LiveAfter(after Cursor, limit int, owners ...string) (live []*streamv1.Record, next Cursor) {
	l.mu.Lock()
	all := make([]*Record, 0, len(l.byID)-min(len(l.byID), len(l.ended)))
	for _, r := range l.byID {
		all = append(all, r)
	}
	l.mu.Unlock()
	all = slices.DeleteFunc(all, func(r *Record) bool { return r.place().compare(after) <= 0 || r.done() || !r.ownedBy(owners) })
	slices.SortFunc(all, func(a, b *Record) int { return a.place().compare(b.place()) })
	if limit > 0 && len(all) > limit {
		all, next = all[:limit], all[limit-1].place()
	}
	live = make([]*streamv1.Record, len(all))
	for i, r := range all {
		live[i] = r.Proto()
	}
	return live, next
}

// ownedBy is OwnedBy for a record of the ledger.
func (r *Record) ownedBy(owners []string) bool {
	if len(owners) == 0 {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.owner != nil && slices.Contains(owners, *r.owner)
}

func (r *Record) place() Cursor {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Cursor{r.tally.Began().UnixNano(), r.id}
}
