package stream

import (
	"context"
	"crypto/rand"
	"strings"
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
// stream has.
func Another(id, tag string) string {
	const random = 10
	return id[:min(len(id), maxIDLen-random-1-len(tag))] + "-" + strings.ToLower(rand.Text()[:random]) + tag
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

// WithID returns a context with the id of a stream. A stream has the same id on all hops.
func WithID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, idKey{}, id)
}

// ID returns the id of ctx's stream, or "".
func ID(ctx context.Context) string {
	id, _ := ctx.Value(idKey{}).(string)
	return id
}
