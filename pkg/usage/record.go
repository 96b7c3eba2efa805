// Package usage writes one record for each stream: the tenant, the tokens, the ending and the
// times. Operators use the records to compute bills and to find abuse. A record never contains a
// prompt or an answer.
//
// The first hop of a stream writes its final record when the stream has ended. A hop whose caller
// vanished before the hop could report the ending writes an orphan record, because the first hop
// may be dead. Join selects the records that count, so that no stream counts twice.
//
// A Log queues records and writes them on a goroutine of its own, so that a slow file or collector
// delays no stream. If the queue is full, a record is lost, and the loss is counted and logged.
package usage

import (
	"cmp"
	"slices"
	"time"
)

// A Kind says which hop wrote a record, and why.
type Kind string

const (
	// Final is the record of the first hop of a stream, which knows everything that reached the
	// client.
	Final Kind = "final"
	// Orphan is the record of a hop whose caller vanished before the hop could report the ending.
	Orphan Kind = "orphan"
)

// A Record is the usage of one stream as known to one hop. docs/reference/usage-records.md explains the fields
// to operators.
type Record struct {
	Kind Kind   `json:"kind"`
	ID   string `json:"id"`             // id of the whole stream
	Part string `json:"part,omitempty"` // on an orphan: the stream's id on the hop, if the stream is one of several choices
	Hop  string `json:"hop"`            // the hop that wrote the record

	// Resumed is set if the writer continued a stream that another api-service had begun. All
	// figures except the prompt begin with the takeover.
	Resumed bool `json:"resumed,omitempty"`

	Tenant  string `json:"tenant,omitempty"`
	Key     string `json:"key,omitempty"` // the id of the API key
	Model   string `json:"model,omitempty"`
	Surface string `json:"surface,omitempty"` // the API that made the stream
	// Ignored are the fields of the request that were left out, as distinct paths.
	Ignored []string `json:"ignored,omitempty"`

	Prompt    uint32  `json:"prompt_tokens"`
	Cached    *uint32 `json:"cached_tokens,omitempty"` // nil until the answer is complete
	Generated uint32  `json:"generated_tokens"`
	Delivered uint32  `json:"delivered_tokens"`
	Wasted    uint32  `json:"wasted_tokens"`
	// Estimated is set if the numbers of tokens are estimates, because the server did not count them.
	Estimated bool `json:"estimated,omitempty"`

	Reason string   `json:"reason"`
	Origin string   `json:"origin"`
	Path   []string `json:"path"` // origin first
	Worker string   `json:"worker,omitempty"`

	Received   time.Time  `json:"received"`
	FirstToken *time.Time `json:"first_token,omitempty"` // when the token was passed to the caller
	Ended      time.Time  `json:"ended"`
}

// Join returns the records that count: every final record, and for a stream without a final record
// the sum of its orphans. An orphan belongs to the final record with the same ID if the two overlap
// in time, because an id may be reused. A resumed record is added to the previous record of the
// same stream. The result is sorted by the time of the ending.
func Join(records []Record) []Record {
	finals := map[string][]Record{}
	var joined []Record
	for _, r := range records {
		if r.Kind == Final {
			finals[r.ID] = append(finals[r.ID], r)
			joined = append(joined, r)
		}
	}
	orphans := map[string][]Record{}
	var ids []string
	for _, r := range records {
		if r.Kind != Orphan {
			continue
		}
		for _, f := range finals[r.ID] { // a takeover has none of the tokens before it
			if f.Resumed && r.Received.Before(f.Received) && r.overlaps(f) {
				r.Ended = f.Received.Add(-1)
			}
		}
		if slices.ContainsFunc(finals[r.ID], r.overlaps) {
			continue
		}
		if orphans[r.ID] == nil {
			ids = append(ids, r.ID)
		}
		orphans[r.ID] = append(orphans[r.ID], r)
	}
	for _, id := range ids {
		joined = append(joined, sum(orphans[id]))
	}
	slices.SortStableFunc(joined, func(a, b Record) int { return cmp.Or(a.Ended.Compare(b.Ended), cmp.Compare(a.ID, b.ID)) })
	return addResumed(joined)
}

// addResumed adds each resumed record to the previous record of the same stream. The records must
// be sorted.
func addResumed(records []Record) []Record {
	last := map[string]int{} // the index in kept of a stream's record, by id
	kept := records[:0]
	for _, r := range records {
		if at, ok := last[r.ID]; ok && r.Resumed {
			whole := sum([]Record{kept[at], r})
			whole.Resumed = kept[at].Resumed
			whole.Surface = cmp.Or(whole.Surface, kept[at].Surface)
			kept = append(slices.Delete(kept, at, at+1), whole)
			for id, i := range last {
				if i > at {
					last[id] = i - 1
				}
			}
		} else {
			kept = append(kept, r)
		}
		last[r.ID] = len(kept) - 1
	}
	return kept
}

func (r Record) overlaps(other Record) bool {
	return !r.Received.After(other.Ended) && !other.Received.After(r.Ended)
}

// sum returns the orphans of one stream as one record. Each orphan has tokens that no other orphan
// counts. All have the same prompt, except the choices of a request, whose prompts may differ; then
// the longest prompt counts.
func sum(orphans []Record) Record {
	slices.SortStableFunc(orphans, func(a, b Record) int { return a.Ended.Compare(b.Ended) })
	all := orphans[len(orphans)-1]
	all.Part = ""
	for _, r := range orphans[:len(orphans)-1] {
		all.Prompt = max(all.Prompt, r.Prompt)
		all.Generated += r.Generated
		all.Delivered += r.Delivered
		all.Wasted += r.Wasted
		all.Estimated = all.Estimated || r.Estimated
		if r.Received.Before(all.Received) {
			all.Received = r.Received
		}
		if r.FirstToken != nil && (all.FirstToken == nil || r.FirstToken.Before(*all.FirstToken)) {
			all.FirstToken = r.FirstToken
		}
		if r.Cached != nil && (all.Cached == nil || *r.Cached > *all.Cached) {
			all.Cached = r.Cached
		}
	}
	return all
}
