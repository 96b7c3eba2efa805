package redislog

import (
	"slices"
	"testing"

	"github.com/whence-dev/whence/api-service/replay"
)

func TestDeltasOfOneGenerationAreMerged(t *testing.T) {
	event := func(seq uint64, kind replay.Kind, data string) replay.Event {
		return replay.Event{Seq: seq, Kind: kind, Data: data}
	}
	got := mergeEvents([]replay.Event{
		event(1, replay.Delta, "a"), event(2, replay.Delta, "b"),
		event(1_000_000_003, replay.Delta, "c"), event(1_000_000_004, replay.Delta, "d"),
		event(2_000_000_005, replay.Failure, "{}"),
	})
	want := []replay.Event{event(2, replay.Delta, "ab"), event(1_000_000_004, replay.Delta, "cd"), event(2_000_000_005, replay.Failure, "{}")}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
