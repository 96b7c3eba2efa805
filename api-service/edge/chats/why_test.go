package chats

import (
	"context"
	"slices"
	"testing"

	"google.golang.org/protobuf/types/known/timestamppb"

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/rpc/observer"
)

func hopNames(records []*streamv1.Record) (names []string) {
	for _, r := range records {
		names = append(names, r.GetHop())
	}
	return names
}

// TestWhyHasTheChatServicesThatAStreamHasLeft: the one that has the stream now comes first.
func TestWhyHasTheChatServicesThatAStreamHasLeft(t *testing.T) {
	a, b := serve(t, "chat-service/0", "127.0.0.1:0"), serve(t, "chat-service/1", "127.0.0.1:0")
	f := gatherAll(t, a, b)
	for _, s := range []*service{a, b} {
		ledger.At(&s.hop).Begin(context.Background(), observer.Beginning{ID: "moved", Hop: s.hop.Name})
	}
	for range 20 { // answers arrive in any order
		hops, err := f.Why(t.Context(), "moved")
		if got := hopNames(hops); err != nil || !slices.Equal(got, []string{"chat-service/1", "chat-service/0"}) {
			t.Fatal(got, err)
		}
	}
}

func TestMergeDropsRecordsThatTwoChatServicesKnow(t *testing.T) {
	record := func(hop, id string, began int64) *streamv1.Record {
		return &streamv1.Record{Hop: hop, StreamId: id, Began: &timestamppb.Timestamp{Seconds: began}}
	}
	got := hopNames(merge([][]*streamv1.Record{
		{record("w/0", "x", 2), record("w/1", "x", 4)}, // from a chat-service that shares the workers
		{record("c/0", "x", 1), record("w/0", "x", 2), record("w/1", "x", 4)},
		{record("c/1", "x", 3), record("w/1", "x", 4), record("w/0", "x", 2)},
	}))
	if want := []string{"c/1", "w/1", "w/0", "c/0"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	choices := merge([][]*streamv1.Record{{record("c/0", "x", 1), record("w/0", "x.0", 2), record("w/0", "x.1", 2)}})
	if len(choices) != 3 {
		t.Errorf("%v: two choices on one worker are two records", hopNames(choices))
	}
}
