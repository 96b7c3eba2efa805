package streamerr

import (
	"slices"
	"strings"
)

const (
	arrow = " > "
	// maxHops bounds the hops accepted from a peer. A longer path keeps its origin and the hops
	// nearest to this hop.
	maxHops = 32
	// maxHopLen bounds the name of a hop, in bytes.
	maxHopLen = 128
)

// A Path is the hops that an ending has crossed, origin first, such as "client > shop > exchange".
type Path []string

// String joins the hops with " > ".
func (p Path) String() string { return strings.Join(p, arrow) }

// Origin returns the hop where the ending began, or "".
func (p Path) Origin() string {
	if len(p) == 0 {
		return ""
	}
	return p[0]
}

// Append returns a copy of p that is one hop longer.
func (p Path) Append(hop string) Path {
	return make(Path, 0, len(p)+1).add(p...).add(hop).bounded()
}

// NewPath returns a path of hops, cleaned so that ParsePath(p.String()) equals p: the names keep
// only printable ASCII without ">", at most 128 bytes per hop, and the path has at most 32 hops.
func NewPath(hops ...string) Path {
	if len(hops) == 0 {
		return nil
	}
	return make(Path, 0, len(hops)).add(hops...).bounded()
}

// add appends the cleaned names of hops, except empty names.
func (p Path) add(hops ...string) Path {
	for _, hop := range hops {
		if hop = cleanHop(hop); hop != "" {
			p = append(p, hop)
		}
	}
	return p
}

// bounded returns p with at most maxHops hops: it drops the hops that follow the origin. An empty
// path becomes nil.
func (p Path) bounded() Path {
	if len(p) == 0 {
		return nil
	}
	if extra := len(p) - maxHops; extra > 0 {
		p = slices.Delete(p, 1, 1+extra)
	}
	return p
}

// ParsePath parses the output of String.
func ParsePath(s string) Path {
	if s == "" {
		return nil
	}
	return NewPath(strings.Split(s, ">")...)
}

func cleanHop(hop string) string {
	if !isClean(hop) {
		hop = strings.Map(func(r rune) rune {
			if r > '~' || !inHop(byte(r)) {
				return -1
			}
			return r
		}, hop)
	}
	hop = strings.TrimSpace(hop)
	return strings.TrimSpace(hop[:min(len(hop), maxHopLen)])
}

func isClean(hop string) bool {
	for i := 0; i < len(hop); i++ {
		if !inHop(hop[i]) {
			return false
		}
	}
	return true
}

// inHop reports whether a hop's name may contain c.
func inHop(c byte) bool { return c >= ' ' && c <= '~' && c != '>' }
