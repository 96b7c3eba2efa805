package access

import (
	"strings"

	"github.com/whence-dev/whence/pkg/stream"
)

// tagLength is the length of the tag of a tenant, in hexadecimal digits.
const tagLength = 8

// StreamID returns the id of the stream that the caller names id. With a key file the id ends in
// the tag of the caller's tenant, so that two tenants may use the same names. That includes names
// that look like generated ids: otherwise a tenant that knows the id of another tenant's stream
// could take its place in the records. The streams of callers without a tenant have no tag.
func (c Caller) StreamID(id string) string {
	if c.Entry == nil {
		return id
	}
	tag := "." + c.Owner[:tagLength]
	if strings.HasSuffix(id, tag) { // the client has it from a response
		return id
	}
	return id + tag
}

// Another returns a new id of the caller for a stream whose id another stream has.
func (c Caller) Another(id string) string {
	if c.Entry == nil {
		return stream.Another(id, "")
	}
	tag := "." + c.Owner[:tagLength]
	return stream.Another(strings.TrimSuffix(id, tag), tag)
}

// Refers returns the id of an existing stream that the caller refers to as id. An operator uses
// the whole ids, and so does everybody for generated ids, which have no tag.
func (c Caller) Refers(id string) string {
	if c.Operates || stream.Generated(id) {
		return id
	}
	return c.StreamID(id)
}

// Named reports whether a tenant has named the stream with this id name.
func Named(id, name string) bool {
	tag, ok := strings.CutPrefix(id, name+".")
	return ok && len(tag) == tagLength && strings.Trim(tag, "0123456789abcdef") == ""
}
