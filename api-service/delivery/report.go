package delivery

import (
	"bytes"
	"encoding/json"
	"io"

	"github.com/whence-dev/whence/pkg/streamerr"
)

// MaxReport bounds a report, in bytes.
const MaxReport = 4 << 10

// A Report is what a client tells of the events that it saw.
type Report struct {
	Gaps        Gaps
	Server, Via string // headers of the response that it read
}

// maxGaps bounds the counts of a report.
const maxGaps = 1 << 24

// Parse reads a report: {"gaps":[…],"server":"…","via":"…"}, strictly.
func Parse(body []byte) (Report, error) {
	var in struct {
		Gaps   []uint32 `json:"gaps"`
		Server string   `json:"server"`
		Via    string   `json:"via"`
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&in); err != nil {
		return Report{}, streamerr.New(streamerr.Invalid, "the body must be a JSON object with gaps, and perhaps server and via: %v", err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return Report{}, streamerr.New(streamerr.Invalid, "something stands behind the JSON object")
	}
	r := Report{Server: in.Server, Via: in.Via}
	if len(in.Gaps) != len(r.Gaps) {
		return Report{}, streamerr.InvalidParam("gaps", "gaps has %d counts; it must have %d", len(in.Gaps), len(r.Gaps))
	}
	for _, n := range in.Gaps {
		if n > maxGaps {
			return Report{}, streamerr.InvalidParam("gaps", "gaps has a count over %d", maxGaps)
		}
	}
	copy(r.Gaps[:], in.Gaps)
	return r, nil
}
