package stream

import (
	"context"
	"crypto/rand"
	"strings"
	"sync/atomic"
)

// maxIDLen bounds a stream id, in bytes.
const maxIDLen = 128

type idKey struct{}

// The form of generated ids.
const (
	generatedPrefix = "str-"
	generatedLen    = len(generatedPrefix) + 26
)

// NewID returns an unguessable stream id of fixed length.
func NewID() string { return generatedPrefix + strings.ToLower(rand.Text()) }

// Another returns a new id that begins with id and ends with tag, for a stream whose own id another
// stream has. Hops may append the numbers of choices to it.
func Another(id, tag string) string {
	const random, choice = 10, len(".99")
	return id[:min(len(id), maxIDLen-random-1-len(tag)-choice)] + "-" + strings.ToLower(rand.Text()[:random]) + tag
}

// Generated reports whether id has the form of NewID's ids.
func Generated(id string) bool {
	text, ok := strings.CutPrefix(id, generatedPrefix)
	return ok && len(id) == generatedLen && strings.Trim(text, "abcdefghijklmnopqrstuvwxyz234567") == ""
}

// ValidID reports whether id is 1 to 128 of A-Z a-z 0-9 . _ : and -.
func ValidID(id string) bool {
	if id == "" || len(id) > maxIDLen {
		return false
	}
	for i := range len(id) {
		switch c := id[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case c == '.', c == '_', c == ':', c == '-':
		default:
			return false
		}
	}
	return true
}

// An identity is the id of the stream of a context.
type identity struct {
	id    atomic.Pointer[string]
	first string
}

// WithID returns a context with the id of a stream. A stream has the same id on all hops.
func WithID(ctx context.Context, id string) context.Context {
	of := &identity{first: id}
	of.id.Store(&of.first)
	return context.WithValue(ctx, idKey{}, of)
}

// ID returns the id of ctx's stream, or "".
func ID(ctx context.Context) string {
	of, ok := ctx.Value(idKey{}).(*identity)
	if !ok {
		return ""
	}
	return *of.id.Load()
}

// Rename gives ctx's stream another id.
func Rename(ctx context.Context, id string) {
	if of, ok := ctx.Value(idKey{}).(*identity); ok {
		of.id.Store(&id)
	}
}
