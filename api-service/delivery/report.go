package delivery

import (
	"encoding/json"
	"fmt"

	"github.com/whence-dev/whence/api-service/strict"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// MaxReport bounds a report, in bytes.
const MaxReport = 4 << 10

// A Report is a client's report of the events that it saw.
type Report struct {
	Gaps        Gaps
	Server, Via string // headers of the response, as the client read them
}

// maxGaps bounds each count of a report.
const maxGaps = 1 << 24

// Parse parses a report strictly: {"gaps":[…],"server":"…","via":"…"}.
func Parse(body []byte) (Report, error) {
	fields, err := strict.Fields(body)
	if err != nil {
		return Report{}, err
	}
	if raw, told := fields["gaps"]; !told || strict.Null(raw) {
		return Report{}, streamerr.InvalidParam("gaps", "gaps is missing").WithCode(streamerr.CodeMissing)
	}
	var r Report
	err = strict.Each(fields, &r, &strict.Reading{Strict: true}, setters)
	return r, err
}

var setters = map[string]func(r *Report, param string, raw json.RawMessage) error{
	"gaps": func(r *Report, param string, raw json.RawMessage) error {
		counts, err := strict.Array(param, raw)
		if err != nil {
			return err
		}
		if len(counts) != len(r.Gaps) {
			return streamerr.InvalidParam(param, "%s has %d counts; it must have %d", param, len(counts), len(r.Gaps))
		}
		for i, raw := range counts {
			n, err := strict.Integer(fmt.Sprintf("%s[%d]", param, i), raw, 0, maxGaps)
			if err != nil {
				return err
			}
			r.Gaps[i] = uint32(n)
		}
		return nil
	},
	"server": func(r *Report, param string, raw json.RawMessage) (err error) {
		r.Server, err = strict.String(param, raw)
		return err
	},
	"via": func(r *Report, param string, raw json.RawMessage) (err error) {
		r.Via, err = strict.String(param, raw)
		return err
	},
}
