package chats

import (
	"cmp"
	"context"
	"errors"
	"slices"

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// Why returns the records of a stream, from all chat-services that ran it and from the hops below:
// first those of the chat-service that knows the most hops or, of several, the one that got the
// stream last. Other chat-services may have run the stream before, or know a part of it from shared
// workers. Why waits for the healthy chat-services, and for the others until one of them knows the
// stream. With owners, a record of another owner's stream counts as missing.
func (f *Fleet) Why(ctx context.Context, id string, owners ...string) (records []*streamv1.Record, err error) {
	type part struct {
		healthy bool
		hops    []*streamv1.Record
	}
	err = errNobody
	awaited := 0
	healthy := map[*peer]bool{}
	all := f.all()
	for _, p := range all {
		if healthy[p] = !p.ill.Load(); healthy[p] {
			awaited++
		}
	}
	var known [][]*streamv1.Record
	each(ctx, all, func(ctx context.Context, p *peer) (part, error) {
		resp, err := p.streams.Why(ctx, &streamv1.WhyRequest{StreamId: id})
		if err != nil {
			return part{healthy: healthy[p]}, streamerr.FromGRPC(Hop, err)
		}
		hops := slices.DeleteFunc(resp.GetHops(), func(r *streamv1.Record) bool { return !ledger.OwnedBy(r, owners...) })
		if len(hops) == 0 {
			return part{healthy: healthy[p]}, streamerr.New(streamerr.NotFound, "%s has no such stream of this owner", p.name)
		}
		return part{healthy[p], hops}, nil
	}, func(a part, e error) bool {
		if a.healthy {
			awaited--
		}
		if e == nil {
			known = append(known, a.hops)
		} else if errors.Is(err, errNobody) || errors.Is(e, streamerr.NotFound) {
			err = e // NOT_FOUND says more than the error of an unreachable chat-service
		}
		return awaited > 0 || len(known) == 0
	})
	if len(known) == 0 {
		return nil, err
	}
	return merge(known), nil
}

// merge returns the records of all lists, without those that an earlier list has. The longest list
// comes first or, of several, the one whose first record began last.
func merge(lists [][]*streamv1.Record) (merged []*streamv1.Record) {
	slices.SortStableFunc(lists, func(a, b []*streamv1.Record) int {
		return cmp.Or(len(b)-len(a), b[0].GetBegan().AsTime().Compare(a[0].GetBegan().AsTime()))
	})
	for _, r := range slices.Concat(lists...) {
		if !slices.ContainsFunc(merged, func(m *streamv1.Record) bool { return m.GetHop() == r.GetHop() && m.GetStreamId() == r.GetStreamId() }) {
			merged = append(merged, r)
		}
	}
	return merged
}
