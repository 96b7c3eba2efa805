package upstream

import (
	"bytes"
	"maps"
	"reflect"
	"runtime"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/vmihailenco/msgpack/v5"
	"go.uber.org/goleak"

	"github.com/whence-dev/whence/llm-worker/kvevents"
	"github.com/whence-dev/whence/pkg/kvblock"
)

// The publisher of the tests leaks a goroutine.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/go-zeromq/zmq4.(*pubMWriter).run"))
}

func pack(t testing.TB, v any) []byte {
	t.Helper()
	b, err := msgpack.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

type (
	list = []any
	dict = map[string]any
)

func TestBothFormsOfEventsAreRead(t *testing.T) {
	stored := event{kind: blockStored, hashes: []uint64{7, 1<<64 - 5}, parent: new(uint64(3)), tokens: []uint32{1, 2, 3, 4}, size: 2}
	foreign := stored
	foreign.foreign = true
	grouped := stored
	grouped.group, grouped.layers = 1, "mamba"
	adapted := stored
	adapted.adapter = "legal"
	for name, c := range map[string]struct {
		sent any
		want event
	}{
		"array":           {list{blockStored, list{7, -5}, 3, list{1, 2, 3, 4}, 2, nil}, stored},
		"newer array":     {list{blockStored, list{7, -5}, 3, list{1, 2, 3, 4}, 2, nil, "GPU", nil, list{nil, nil}, 0, nil, 128, "what comes next"}, stored},
		"map":             {dict{"type": blockStored, "block_hashes": list{7, -5}, "parent_block_hash": 3, "token_ids": list{1, 2, 3, 4}, "block_size": 2, "lora_id": nil, "medium": nil, "new": list{dict{"a": 1}}}, stored},
		"an adapter":      {list{blockStored, list{7, -5}, 3, list{1, 2, 3, 4}, 2, 1}, foreign},
		"a named adapter": {list{blockStored, list{7, -5}, 3, list{1, 2, 3, 4}, 2, 1, "GPU", "legal"}, adapted},
		"its name as key": {list{blockStored, list{7, -5}, 3, list{1, 2, 3, 4}, 2, 1, "GPU", "legal", list{list{"legal"}, list{"legal"}}}, adapted},
		"key first, map":  {dict{"type": blockStored, "block_hashes": list{7, -5}, "parent_block_hash": 3, "token_ids": list{1, 2, 3, 4}, "block_size": 2, "extra_keys": list{"legal", nil}, "lora_name": "legal"}, adapted},
		"adapter, salt":   {list{blockStored, list{7, -5}, 3, list{1, 2, 3, 4}, 2, 1, "GPU", "legal", list{list{"legal", "salt"}, list{"legal"}}}, asForeign(adapted)},
		"an image":        {list{blockStored, list{7, -5}, 3, list{1, 2, 3, 4}, 2, nil, "GPU", nil, list{list{list{"hash", 3}}, nil}}, foreign},
		"another medium":  {list{blockStored, list{7, -5}, 3, list{1, 2, 3, 4}, 2, nil, "CPU"}, foreign},
		"a salt":          {list{blockStored, list{7, -5}, 3, list{1, 2, 3, 4}, 2, nil, "GPU", nil, list{list{"salt"}, nil}}, foreign},
		"a group":         {list{blockStored, list{7, -5}, 3, list{1, 2, 3, 4}, 2, nil, "GPU", nil, nil, 1, "mamba"}, grouped},
		"a group, map":    {dict{"type": blockStored, "block_hashes": list{7, -5}, "parent_block_hash": 3, "token_ids": list{1, 2, 3, 4}, "block_size": 2, "group_idx": 1, "kv_cache_spec_kind": "mamba"}, grouped},
		"SGLang's salt":   {list{blockStored, list{7, -5}, 3, list{1, 2, 3, 4}, 2, nil, "GPU", dict{"cache_salt": "tenant"}}, foreign},
		"SGLang's, map":   {dict{"type": blockStored, "block_hashes": list{7, -5}, "parent_block_hash": 3, "token_ids": list{1, 2, 3, 4}, "block_size": 2, "metadata": dict{"cache_salt": "tenant"}}, foreign},
		"no salt, map":    {dict{"type": blockStored, "block_hashes": list{7, -5}, "parent_block_hash": 3, "token_ids": list{1, 2, 3, 4}, "block_size": 2, "metadata": nil}, stored},
		"removed, group":  {list{blockRemoved, list{7}, "GPU", 1}, event{kind: blockRemoved, hashes: []uint64{7}, group: 1}},
		"pairs":           {list{blockStored, list{7}, nil, list{list{1, 2}}, 1, nil}, event{kind: blockStored, hashes: []uint64{7}, size: 1, foreign: true}},
		"first block":     {list{blockStored, list{7}, nil, list{1}, 1, nil}, event{kind: blockStored, hashes: []uint64{7}, tokens: []uint32{1}, size: 1}},
		"root of llm-d":   {list{blockStored, list{7}, 0, list{1}, 1, nil}, event{kind: blockStored, hashes: []uint64{7}, parent: new(uint64(0)), tokens: []uint32{1}, size: 1}},
		"root of bytes":   {list{blockStored, list{7}, []byte{}, list{1}, 1, nil}, event{kind: blockStored, hashes: []uint64{7}, tokens: []uint32{1}, size: 1}},
		"root, map":       {dict{"type": blockStored, "block_hashes": list{7}, "parent_block_hash": nil, "token_ids": list{1}, "block_size": 1}, event{kind: blockStored, hashes: []uint64{7}, tokens: []uint32{1}, size: 1}},
		"hashes of bytes": {list{blockRemoved, list{[]byte("a hash")}}, event{kind: blockRemoved, hashes: []uint64{xxhash.Sum64String("a hash")}}},
		"removed":         {list{blockRemoved, list{7}, "GPU"}, event{kind: blockRemoved, hashes: []uint64{7}}},
		"removed, map":    {dict{"type": blockRemoved, "block_hashes": list{7}}, event{kind: blockRemoved, hashes: []uint64{7}}},
		"cleared":         {list{allCleared}, event{kind: allCleared}},
		"cleared, map":    {dict{"type": allCleared}, event{kind: allCleared}},
		"unknown":         {list{"Rumour", dict{"a": list{1}}}, event{kind: "Rumour"}},
	} {
		for _, batch := range []any{list{1.5, list{c.sent}, nil}, dict{"ts": 1.5, "events": list{c.sent}, "data_parallel_rank": 0}} {
			events, err := parse(pack(t, batch))
			if len(events) == 1 { // used only by close
				events[0].adapterID, events[0].extra = false, nil
			}
			if err != nil || len(events) != 1 || !reflect.DeepEqual(events[0], c.want) {
				t.Errorf("%s: %+v, %v; want %+v", name, events, err, c.want)
			}
		}
	}
}

// asForeign returns the event with foreign set.
func asForeign(e event) event {
	e.foreign = true
	return e
}

// Names of an adapter's blocks begin at the adapter's root and chain like others, but differ from
// the model's.
func TestBlocksOfAnAdapterAreNamedByIt(t *testing.T) {
	n := names{held: &kvevents.Hub{}, known: map[uint64]uint64{}, most: 100, drop: func(why DropReason, _ int) { t.Error("dropped:", why) }}
	ids := []uint32{1, 2, 3, 4}
	n.apply(&event{kind: blockStored, hashes: []uint64{7}, tokens: ids[:2], size: 2, adapter: "legal"})
	n.apply(&event{kind: blockStored, hashes: []uint64{8}, parent: new(uint64(7)), tokens: ids[2:], size: 2, adapter: "legal"})
	n.apply(&event{kind: blockStored, hashes: []uint64{9}, tokens: ids[:2], size: 2})
	want := kvblock.Chain(nil, kvblock.Root("legal"), ids, 2)
	if n.known[7] != want[0] || n.known[8] != want[1] || n.known[9] != kvblock.Next(0, ids[:2]) {
		t.Errorf("%x, want %x", n.known, want)
	}
}

func TestInvalidBatchesAreRefused(t *testing.T) {
	for _, v := range []any{nil, 1, list{}, dict{}, dict{"ts": 1.5}, dict{"events": 7}, dict{"events": list{7}}, list{1.5}, list{1.5, 7}, list{1.5, list{list{}}}, list{1.5, list{7}}, list{1.5, list{list{blockStored, list{nil}}}}, list{1.5, list{list{blockStored, "x"}}}} {
		if events, err := parse(pack(t, v)); err == nil {
			t.Errorf("%v: %+v", v, events)
		}
	}
	// arrays nested a million deep, in an element that is skipped
	deep := append([]byte{0x93, 0xc0, 0x90}, bytes.Repeat([]byte{0x91}, 1<<20)...)
	if _, err := parse(deep); err != nil {
		t.Error(err)
	}
	deep = append([]byte{0x92}, bytes.Repeat([]byte{0x91}, 1<<20)...)
	if _, err := parse(deep); err == nil {
		t.Error("a batch without an end")
	}
}

// TestBatchesTakeBoundedMemory: the memory of a batch is a small multiple of its bytes.
func TestBatchesTakeBoundedMemory(t *testing.T) { //nolint:paralleltest // it measures what the process allocates
	const size = 4 << 20
	stored := append([]byte{0x82, 0xa4}, "type"...)
	stored = append(append(append(stored, 0xab), blockStored...), 0xaa)
	stored = append(append(stored, "extra_keys"...), 0xdd, 0, 0x40, 0, 0)
	for name, test := range map[string]struct{ head, part []byte }{
		"events without a kind": {[]byte{0x92, 0x00, 0xdd, 0, 0x7f, 0, 0}, []byte{0x91, 0xa0}},
		"events that are maps":  {[]byte{0x92, 0x00, 0xdd, 0, 0x7f, 0, 0}, []byte{0x80}},
		"keys":                  {append([]byte{0x92, 0x00, 0x91}, stored...), []byte{0xa1, 'a', 0xa1, 'b'}},
		"nesting":               {[]byte{0x92}, []byte{0x91}},
	} {
		payload := append(bytes.Clone(test.head), bytes.Repeat(test.part, size/len(test.part))...)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _ = parse(payload) // an error is as good
		runtime.ReadMemStats(&after)
		if got := after.TotalAlloc - before.TotalAlloc; got > 16*size {
			t.Errorf("%s: %d bytes of a batch took %d bytes", name, len(payload), got)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(pack(f, list{1.5, list{list{blockStored, list{7, -5}, 3, list{1, 2, 3, 4}, 2, nil, "GPU", nil, list{nil, nil}, 0}, list{allCleared}}, 0}))
	f.Add(pack(f, list{1.5, list{dict{"type": blockRemoved, "block_hashes": list{[]byte("x")}}}}))
	f.Add(pack(f, dict{"ts": 1.5, "events": list{dict{"type": blockStored, "block_hashes": list{7}, "token_ids": list{1}, "group_idx": 2, "kv_cache_spec_kind": "full_attention"}}}))
	f.Add([]byte{0x92, 0xc0, 0xdd, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		events, err := parse(b)
		if err != nil {
			return
		}
		n := names{held: &kvevents.Hub{}, known: map[uint64]uint64{}, most: 100, drop: func(DropReason, int) {}}
		for i := range events {
			n.apply(&events[i])
		}
		if len(n.known) > 100 {
			t.Errorf("%d blocks are known", len(n.known))
		}
	})
}

func TestBlocksAreNamedByTheirTokens(t *testing.T) {
	held := &kvevents.Hub{}
	dropped := map[DropReason]int{}
	n := names{held: held, known: map[uint64]uint64{}, most: 6, drop: func(r DropReason, blocks int) { dropped[r] += blocks }}
	ids := []uint32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	want := kvblock.Chain(nil, 0, ids, 2)
	n.apply(&event{kind: blockStored, hashes: []uint64{11, 12}, tokens: ids[:4], size: 2})
	n.apply(&event{kind: blockStored, hashes: []uint64{13}, parent: new(uint64(12)), tokens: ids[4:6], size: 2})
	// its parent was missed
	n.apply(&event{kind: blockStored, hashes: []uint64{15}, parent: new(uint64(14)), tokens: ids[8:], size: 2})
	// without a name
	n.apply(&event{kind: blockStored, hashes: []uint64{14}, parent: new(uint64(13)), tokens: ids[6:8], size: 2, foreign: true})
	// half a block
	n.apply(&event{kind: blockStored, hashes: []uint64{14}, parent: new(uint64(13)), tokens: ids[6:7], size: 2})
	for i, h := range []uint64{11, 12, 13} {
		if n.known[h] != want[i] {
			t.Errorf("block %d is %x, want %x", h, n.known[h], want[i])
		}
	}
	if len(n.known) != 3 || held.Held() != 3 {
		t.Error(n.known, held.Held())
	}
	if want := map[DropReason]int{UnknownParent: 1, NotPlainText: 1, Malformed: 1}; !maps.Equal(dropped, want) {
		t.Errorf("dropped %v, want %v", dropped, want)
	}
	n.apply(&event{kind: blockRemoved, hashes: []uint64{13, 99}})
	if len(n.known) != 2 || held.Held() != 2 {
		t.Error(n.known, held.Held())
	}
	// more blocks than the limit
	n.apply(&event{kind: blockStored, hashes: []uint64{1, 2, 3, 4, 5}, tokens: ids, size: 2})
	if len(n.known) != 5 || held.Held() != 5 {
		t.Error(n.known, held.Held())
	}
	n.apply(&event{kind: allCleared})
	if len(n.known) != 0 || held.Held() != 0 {
		t.Error(n.known, held.Held())
	}
}

// TestHybridModelIsFollowedByItsWholePrompts: a model with sliding windows stores each block once for each
// group of layers, under the same hashes, and loses those behind the window first.
func TestHybridModelIsFollowedByItsWholePrompts(t *testing.T) {
	held := &kvevents.Hub{}
	dropped := map[DropReason]int{}
	n := names{held: held, known: map[uint64]uint64{}, most: 100, drop: func(r DropReason, blocks int) { dropped[r] += blocks }}
	ids := []uint32{1, 2, 3, 4, 5, 6}
	store := func(group int, layers string) {
		n.apply(&event{kind: blockStored, hashes: []uint64{11, 12, 13}, tokens: ids, size: 2, group: group, layers: layers})
	}
	remove := func(group int) { n.apply(&event{kind: blockRemoved, hashes: []uint64{11}, group: group}) }
	store(0, "sliding_window")
	store(1, "sliding_window")
	store(2, "full_attention")
	store(3, "full_attention")
	if n.group != 2 || held.Held() != 3 || dropped[OtherGroup] != 6 {
		t.Fatalf("group %d, %d blocks, dropped %v", n.group, held.Held(), dropped)
	}
	for _, group := range []int{0, 1, 3} {
		remove(group)
	}
	if held.Held() != 3 {
		t.Error("a block that left the window is forgotten:", held.Held())
	}
	remove(2)
	if held.Held() != 2 || n.known[12] != kvblock.Chain(nil, 0, ids, 2)[1] {
		t.Error(held.Held(), n.known)
	}
	// The next engine does not report the layers, so its first group is followed.
	n.reset()
	store(1, "")
	if held.Held() != 0 {
		t.Error("blocks of the engine before, or of another group:", held.Held())
	}
	store(0, "")
	if n.group != 0 || held.Held() != 3 {
		t.Error(n.group, held.Held())
	}
}

// TestBlocksOfLLMDAreNamed covers llm-d's publishers, which send 0 as the parent of a first block,
// and its simulator, which sends no size.
func TestBlocksOfLLMDAreNamed(t *testing.T) {
	for name, size := range map[string]int{"size": 2, "no size": 0} {
		held := &kvevents.Hub{}
		n := names{held: held, known: map[uint64]uint64{}, most: 100, drop: func(r DropReason, blocks int) { t.Errorf("%d blocks are dropped: %s", blocks, r) }}
		ids := []uint32{1, 2, 3, 4}
		n.apply(&event{kind: blockStored, hashes: []uint64{11, 12}, parent: new(uint64(0)), tokens: ids, size: size})
		if want := kvblock.Chain(nil, 0, ids, 2); n.known[11] != want[0] || n.known[12] != want[1] || n.size != 2 {
			t.Errorf("%s: %x of %d tokens, want %x", name, n.known, n.size, want)
		}
	}
}

// A hash may be 0 by chance.
func TestBlockWhoseHashIsZeroIsAParent(t *testing.T) {
	held := &kvevents.Hub{}
	n := names{held: held, known: map[uint64]uint64{}, most: 100, drop: func(DropReason, int) {}}
	ids := []uint32{1, 2, 3, 4}
	n.apply(&event{kind: blockStored, hashes: []uint64{0}, tokens: ids[:2], size: 2})
	n.apply(&event{kind: blockStored, hashes: []uint64{12}, parent: new(uint64(0)), tokens: ids[2:], size: 2})
	if want := kvblock.Chain(nil, 0, ids, 2); n.known[0] != want[0] || n.known[12] != want[1] {
		t.Errorf("%x, want %x", n.known, want)
	}
}
