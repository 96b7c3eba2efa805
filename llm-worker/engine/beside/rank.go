package beside

import (
	"fmt"
	"strconv"
)

// maxRank bounds the number of a rank.
const maxRank = 1<<12 - 1

// A Rank is one of the data-parallel replicas of the model in a server, each with a KV cache and a queue
// of its own. It is a flag.Value. The zero value is no rank: the server chooses one for each request.
type Rank struct {
	number uint32
	given  bool
}

// Number returns the rank's number, from 0 on; ok is false if there is none.
func (r *Rank) Number() (number uint32, ok bool) { return r.number, r.given }

// String implements flag.Value. No rank is "".
func (r *Rank) String() string {
	if !r.given {
		return ""
	}
	return strconv.FormatUint(uint64(r.number), 10)
}

// Set implements flag.Value.
func (r *Rank) Set(text string) error {
	if text == "" {
		*r = Rank{}
		return nil
	}
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil || n > maxRank {
		return fmt.Errorf("%.32q is not a rank; it must be a number from 0 to %d", text, maxRank)
	}
	*r = Rank{uint32(n), true}
	return nil
}
