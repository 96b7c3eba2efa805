package monitor

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"strings"
)

// A Parent is a place in a trace, as in W3C's Trace Context: the trace and the parent span. The
// zero value means no parent.
type Parent struct {
	Trace [16]byte
	Span  [8]byte
	Flags byte
	State string // the tracestate
}

// Headers of W3C's Trace Context, and the prefix of the two that carry the trace of a stream. The
// application's spans must ignore the sampled flag of a stream, so its own headers stay different.
const (
	traceparent  = "traceparent"
	tracestate   = "tracestate"
	streamPrefix = "whence-"

	// Sampled is the flag of a span that is exported.
	Sampled = 1
	// knownFlags are the flags of version 00: sampled and random.
	knownFlags = 3
)

// Valid reports whether p is a parent.
func (p Parent) Valid() bool { return p.Trace != [16]byte{} && p.Span != [8]byte{} }

// ReadParent reads a caller's headers: the headers of its stream if present, otherwise those of its
// application.
func ReadParent(header func(key string) string) Parent {
	if p := ParseParent(header(streamPrefix+traceparent), header(streamPrefix+tracestate)); p.Valid() {
		return p
	}
	return ParseParent(header(traceparent), header(tracestate))
}

// version0 is the form of a traceparent of version 00. A later version may have more behind it.
const version0 = "00-tttttttttttttttttttttttttttttttt-ssssssssssssssss-ff"

// ParseParent parses a caller's headers. A malformed traceparent is the zero Parent.
func ParseParent(traceparent, tracestate string) (p Parent) {
	head := traceparent
	switch later := len(head) > len(version0); {
	case len(head) < len(version0), head[:2] == "ff", later && (head[:2] == "00" || head[len(version0)] != '-'):
		return Parent{}
	case later:
		head = head[:len(version0)]
	}
	var version, flags [1]byte
	for _, part := range []struct {
		to   []byte
		text string
	}{{version[:], head[:2]}, {p.Trace[:], head[3:35]}, {p.Span[:], head[36:52]}, {flags[:], head[53:]}} {
		if _, err := hex.Decode(part.to, []byte(part.text)); err != nil || part.text != strings.ToLower(part.text) {
			return Parent{}
		}
	}
	if head[2] != '-' || head[35] != '-' || head[52] != '-' || version[0] == 0 && flags[0]&^knownFlags != 0 || !p.Valid() {
		return Parent{}
	}
	p.Flags, p.State = flags[0]&knownFlags, cleanState(tracestate)
	return p
}

// maxState bounds a tracestate, in bytes, as the recommendation does.
const maxState = 512

// cleanState returns a tracestate, or "" if it is too long or is not printable ASCII.
func cleanState(state string) string {
	if len(state) > maxState || strings.ContainsFunc(state, func(r rune) bool { return r < ' ' || r > '~' }) {
		return ""
	}
	return state
}

// each calls set with the headers that send p to a callee. It does nothing if p is not valid.
func (p Parent) each(set func(key, value string)) {
	if !p.Valid() {
		return
	}
	set(traceparent, "00-"+hex.EncodeToString(p.Trace[:])+"-"+hex.EncodeToString(p.Span[:])+"-"+hex.EncodeToString([]byte{p.Flags & knownFlags}))
	if p.State != "" {
		set(tracestate, p.State)
	}
}

// below returns the place of a new span below p, or of the first span of a new trace if p is not
// valid. ratio is the share of the traces that are sampled. A caller's sampled flag is ignored:
// other parties do not decide what is exported here.
func (p Parent) below(ratio float64) Parent {
	self := Parent{Trace: p.Trace, State: p.State}
	if !p.Valid() {
		random(self.Trace[:])
	}
	random(self.Span[:])
	// The algorithm of OpenTelemetry's sampler by ratio.
	if ratio >= 1 || float64(binary.BigEndian.Uint64(self.Trace[8:])>>1) < ratio*(1<<63) {
		self.Flags = Sampled
	}
	return self
}

// random fills an id.
func random(id []byte) {
	if _, err := rand.Read(id); err != nil {
		panic(err) // the system has no randomness
	}
}
