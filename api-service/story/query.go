package story

import (
	"net/url"
	"slices"
	"strconv"

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A Query selects the streams that GET /v1/streams lists.
type Query struct {
	Ended  bool             // list ended streams, newest first, instead of running ones
	Limit  int              // maximum number of ended streams
	After  ledger.Cursor    // the end of the previous page of live streams
	reason streamerr.Reason // Unspecified for any
	hop    string           // in the path of the ending; "" for any
	worker string           // among the workers that have answered; "" for any
}

// Default and maximum number of listed ended streams.
const (
	DefaultLimit = 100
	MaxLimit     = 1000
	// LivePage is the number of live streams on a page of their list.
	LivePage = 1000
)

// ParseQuery parses the query of the URL, as strictly as a body: unknown parameters and values are
// refused.
func ParseQuery(raw string) (Query, error) {
	q := Query{Limit: DefaultLimit}
	values, err := url.ParseQuery(raw)
	if err != nil {
		return q, streamerr.New(streamerr.Invalid, "the query cannot be read: %v", err)
	}
	for name, all := range values {
		if len(all) > 1 {
			return q, streamerr.InvalidParam(clip(name), "%.32q appears %d times", name, len(all))
		}
		if err := q.set(name, all[0]); err != nil {
			return q, err
		}
	}
	if q.Ended && values.Has("page_token") {
		return q, streamerr.InvalidParam("page_token", "page_token is for live streams; use limit for ended ones")
	}
	if !q.Ended {
		for _, name := range []string{"reason", "hop", "limit"} {
			if values.Has(name) {
				return q, streamerr.InvalidParam(name, "%s selects ended streams: it requires state=ended", name)
			}
		}
	}
	return q, nil
}

func (q *Query) set(name, value string) error {
	switch name {
	case "state":
		if value != "live" && value != "ended" {
			return streamerr.InvalidParam(name, "state is %.32q; it must be live or ended", value)
		}
		q.Ended = value == "ended"
	case "reason":
		if q.reason = streamerr.ParseReason(value); q.reason.String() != value || q.reason == streamerr.Unspecified {
			return streamerr.InvalidParam(name, "no stream ends with the reason %.32q", value)
		}
	case "hop":
		if q.hop = value; value == "" {
			return streamerr.InvalidParam(name, "hop is empty; leave it out for any")
		}
	case "worker":
		if q.worker = value; value == "" {
			return streamerr.InvalidParam(name, "worker is empty; leave it out for any")
		}
	case "limit":
		n, err := strconv.Atoi(value)
		if err != nil || n < 1 || n > MaxLimit {
			return streamerr.InvalidParam(name, "limit is %.32q; it must be 1 to %d", value, MaxLimit)
		}
		q.Limit = n
	case "page_token":
		after, err := ledger.ParseCursor(value)
		if err != nil {
			return streamerr.InvalidParam(name, "page_token is %.32q; it must be the next_page_token of an earlier answer", value)
		}
		q.After = after
	default:
		return streamerr.InvalidParam(clip(name), "there is no parameter %.32q; the parameters are state, reason, hop, worker, limit and page_token", name).WithCode(streamerr.CodeUnknownField)
	}
	return nil
}

// clip bounds the part of a parameter's name that an error quotes.
func clip(name string) string { return name[:min(len(name), 32)] }

// Wants reports whether the query selects a stream.
func (q *Query) Wants(r *streamv1.Record) bool {
	return (q.reason == streamerr.Unspecified || q.reason.Proto() == r.GetReason()) &&
		(q.hop == "" || slices.Contains(r.GetPath(), q.hop)) &&
		(q.worker == "" || slices.Contains(r.GetWorkers(), q.worker))
}
