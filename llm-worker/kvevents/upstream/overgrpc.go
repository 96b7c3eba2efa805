package upstream

import (
	"context"
	"errors"

	vllmengine "github.com/whence-dev/whence/idl/gen/vllm/engine"
	"github.com/whence-dev/whence/llm-worker/engine/beside/overgrpc"
)

// OverGRPC stands for the events of the engine's gRPC service, in Options.Events.
const OverGRPC = "grpc"

// errNoPublisher is the error for a vLLM that publishes no events.
var errNoPublisher = errors.New(`the server publishes no KV events: start vLLM with --kv-events-config '{"enable_kv_cache_events":true,"publisher":"zmq"}'`)

// subscribe follows the events of the engine's gRPC service, and returns the error that ended them. It calls
// subscribed when the first batch has come.
func (l *Listener) subscribe(ctx context.Context, subscribed func()) error {
	conn, err := overgrpc.Dial(l.opts.Server)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // nothing is lost
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	batches, err := vllmengine.NewVllmEngineClient(conn).SubscribeKvEvents(ctx, &vllmengine.SubscribeKvEventsRequest{})
	if err != nil {
		return err
	}
	l.startOver()
	for heard := false; ; heard = true {
		batch, err := batches.Recv()
		switch {
		case overgrpc.IsUnimplemented(err):
			return errNoPublisher
		case err != nil:
			return err
		case !heard:
			subscribed()
			l.log.Info("listening to the engine's KV events", "events", OverGRPC, "engine", l.opts.Server)
		}
		l.take(ctx, batch)
	}
}

// take applies a batch, unless it is of another rank, or has only the engine's load.
func (l *Listener) take(ctx context.Context, batch *vllmengine.KvEventBatch) {
	if batch.GetLoad().GetLoadOnly() || uint32(batch.GetDpRank()) != l.opts.Rank { //nolint:gosec // a negative number becomes one that is no rank
		return
	}
	number := batch.GetSequenceNumber()
	l.checkNumber(ctx, number)
	var events []event
	for _, e := range batch.GetEvents() {
		switch {
		case e.GetCleared() != nil:
			events = append(events, event{kind: allCleared})
		case e.GetRemoved() != nil:
			events = append(events, removedOverGRPC(e.GetRemoved()))
		case len(e.GetStored().GetBlocks()) > 0:
			events = append(events, storedOverGRPC(e.GetStored()))
		}
	}
	l.apply(number, events)
}

// isElsewhere reports whether blocks are not in the memory of this engine's GPUs. level is an older field than tier.
func isElsewhere(tier vllmengine.KvCacheTier, locality vllmengine.KvCacheLocality, level int32) bool {
	return tier > vllmengine.KvCacheTier_KV_CACHE_TIER_DEVICE || locality == vllmengine.KvCacheLocality_KV_CACHE_LOCALITY_REMOTE || level != 0
}

func removedOverGRPC(r *vllmengine.KvBlocksRemoved) event {
	e := event{kind: blockRemoved, group: int(r.GetGroupIdx()), foreign: isElsewhere(r.GetTier(), r.GetLocality(), r.GetCacheLevel())}
	for _, hash := range r.GetBlockHashes() {
		e.hashes = append(e.hashes, uint64(hash)) //nolint:gosec // the same bits
	}
	return e
}

func storedOverGRPC(s *vllmengine.KvBlocksStored) event {
	e := event{
		kind: blockStored, size: int(s.GetBlocks()[0].GetBlockSize()), adapter: s.GetLoraName(), group: int(s.GetGroupIdx()), layers: s.GetKvCacheSpecKind(),
		foreign: isElsewhere(s.GetTier(), s.GetLocality(), 0) || s.GetCacheSalt() != "",
	}
	if s.ParentBlockHash != nil {
		e.parent = new(uint64(s.GetParentBlockHash())) //nolint:gosec // the same bits
	}
	for _, b := range s.GetBlocks() {
		e.hashes, e.tokens = append(e.hashes, uint64(b.GetBlockHash())), append(e.tokens, b.GetTokenIds()...) //nolint:gosec // the same bits
		e.adapterID = e.adapterID || b.LoraId != nil
		e.foreign = e.foreign || b.GetCacheLevel() != 0
		for _, key := range b.GetExtraKeys() {
			if _, text := key.GetKey().(*vllmengine.KvBlockExtraKey_Text); !text {
				e.foreign = true
			} else {
				e.addExtra(key.GetText())
			}
		}
	}
	e.close()
	return e
}
