package upstream

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/cespare/xxhash/v2"
	"github.com/vmihailenco/msgpack/v5"
	"github.com/vmihailenco/msgpack/v5/msgpcode"
)

// An event is a change of an engine's cache.
type event struct {
	kind    string   // one of the following
	hashes  []uint64 // the engine's block hashes
	parent  *uint64  // of the first block; nil for the beginning of a prompt
	tokens  []uint32
	size    int    // tokens per block; 0 if the engine does not report it
	adapter string // the LoRA adapter that filled the blocks; "" for the model itself
	// foreign marks blocks that are not in the GPU's memory, or that depend on more than token ids
	// and a named adapter: images, a salt, an adapter without a name.
	foreign bool
	// A hybrid model has several groups of layers, each with its own cache of the same prompt, and
	// under the same hashes. layers is the kind of the group's layers; "" if the engine does not
	// report it.
	group  int
	layers string

	adapterID bool     // the event has a number for an adapter
	extra     []string // further keys of the blocks; see addExtra
}

// addExtra adds a further key. Two that differ make the event foreign, whatever the adapter is called, so no
// more are kept.
func (e *event) addExtra(key string) {
	if len(e.extra) == 0 || len(e.extra) == 1 && e.extra[0] != key {
		e.extra = append(e.extra, key)
	}
}

// close sets foreign where it depends on several fields. vLLM repeats the name of the adapter among
// the keys.
func (e *event) close() {
	if e.adapterID && e.adapter == "" {
		e.foreign = true
	}
	for _, key := range e.extra {
		e.foreign = e.foreign || key != e.adapter
	}
}

// blockSize returns the number of tokens per block, or 0 if the tokens do not fill the blocks.
// llm-d's simulator sends no size.
func (e *event) blockSize() int {
	if len(e.hashes) == 0 || len(e.tokens) == 0 || len(e.tokens)%len(e.hashes) != 0 {
		return 0
	}
	size := len(e.tokens) / len(e.hashes)
	if e.size != 0 && e.size != size {
		return 0
	}
	return size
}

const (
	blockStored  = "BlockStored"
	blockRemoved = "BlockRemoved"
	allCleared   = "AllBlocksCleared"
)

// fields are the names of the elements of events that are arrays, in order. Later versions append
// to them.
var fields = map[string][]string{
	blockStored:  {"block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name", "extra_keys", "group_idx", "kv_cache_spec_kind"},
	blockRemoved: {"block_hashes", "medium", "group_idx"},
}

// parse reads a batch: an array of a time, the events, and optional further elements; or a map with
// the events under "events". An event is an array that begins with its kind, or a map with the kind
// under "type".
func parse(payload []byte) (events []event, err error) {
	d := decoder{msgpack.NewDecoder(bytes.NewReader(payload))}
	code, err := d.PeekCode()
	if err != nil {
		return nil, err
	}
	if isMap(code) {
		return d.namedBatch()
	}
	n, err := d.DecodeArrayLen()
	if err != nil {
		return nil, err
	}
	if n < 2 {
		return nil, fmt.Errorf("a batch of %d parts has no events", n)
	}
	if err := d.skip(); err != nil {
		return nil, err
	}
	return d.events()
}

// isMap reports whether a map follows.
func isMap(code byte) bool {
	return msgpcode.IsFixedMap(code) || code == msgpcode.Map16 || code == msgpcode.Map32
}

// isArray reports whether an array follows.
func isArray(code byte) bool {
	return msgpcode.IsFixedArray(code) || code == msgpcode.Array16 || code == msgpcode.Array32
}

type decoder struct{ *msgpack.Decoder }

// namedBatch reads a batch whose parts have names.
func (d decoder) namedBatch() (events []event, err error) {
	n, err := d.DecodeMapLen()
	if err != nil {
		return nil, err
	}
	found := false
	for range n {
		name, err := d.DecodeString()
		switch {
		case err != nil:
			return nil, err
		case name != "events" || found:
			err = d.skip()
		default:
			found = true
			events, err = d.events()
		}
		if err != nil {
			return nil, err
		}
	}
	if !found {
		return nil, errors.New("a batch has no events")
	}
	return events, nil
}

// maxEvents bounds the events of a batch. An event of two bytes takes some hundred bytes of memory.
const maxEvents = 64 << 10

// events reads the events of a batch.
func (d decoder) events() (events []event, err error) {
	n, err := d.DecodeArrayLen()
	if err != nil {
		return nil, err
	}
	if n > maxEvents {
		return nil, fmt.Errorf("a batch has %d events; at most %d are read", n, maxEvents)
	}
	for range n {
		e, err := d.event()
		if err != nil {
			return nil, fmt.Errorf("event %d: %w", len(events), err)
		}
		e.close()
		events = append(events, e)
	}
	return events, nil
}

func (d decoder) event() (e event, err error) {
	code, err := d.PeekCode()
	if err != nil {
		return e, err
	}
	if isMap(code) {
		n, err := d.DecodeMapLen()
		for range n {
			name, err := d.DecodeString()
			if err == nil {
				err = d.field(&e, name)
			}
			if err != nil {
				return e, err
			}
		}
		return e, err
	}
	n, err := d.DecodeArrayLen()
	if err == nil && n < 1 {
		err = errors.New("it has no kind")
	}
	if err != nil {
		return e, err
	}
	if e.kind, err = d.DecodeString(); err != nil {
		return e, err
	}
	for i := range n - 1 {
		name := ""
		if known := fields[e.kind]; i < len(known) {
			name = known[i]
		}
		if err := d.field(&e, name); err != nil {
			return e, fmt.Errorf("%s: %w", name, err)
		}
	}
	return e, nil
}

// field reads the value of a field, and skips unknown fields.
func (d decoder) field(e *event, name string) (err error) {
	switch name {
	case "type":
		e.kind, err = d.DecodeString()
	case "block_hashes":
		return d.each(func() error {
			h, err := d.hash()
			if err == nil && h == nil {
				err = errors.New("a block has no hash")
			}
			if err == nil {
				e.hashes = append(e.hashes, *h)
			}
			return err
		})
	case "parent_block_hash":
		e.parent, err = d.hash()
	case "token_ids":
		return d.each(func() error { return d.token(e) })
	case "block_size":
		e.size, err = d.DecodeInt()
	case "medium":
		var medium string // "" for nil
		medium, err = d.DecodeString()
		e.foreign = e.foreign || medium != "" && !strings.EqualFold(medium, "GPU")
	case "group_idx":
		e.group, err = d.DecodeInt() // 0 for nil
	case "kv_cache_spec_kind":
		e.layers, err = d.DecodeString() // "" for nil
	case "metadata": // of SGLang: a salt
		return d.further(e)
	case "extra_keys":
		return d.each(func() error { return d.keys(e) })
	case "lora_name":
		code, err := d.PeekCode()
		if err == nil && isMap(code) { // SGLang has metadata in this place
			return d.further(e)
		}
		if err == nil {
			e.adapter, err = d.DecodeString() // "" for nil
		}
		return err
	case "lora_id":
		code, err := d.PeekCode()
		if err != nil {
			return err
		}
		e.adapterID = code != msgpcode.Nil
		return d.skip()
	default:
		return d.skip()
	}
	return err
}

// further reads data that the blocks depend on, unless it is nil.
func (d decoder) further(e *event) error {
	code, err := d.PeekCode()
	if err != nil {
		return err
	}
	e.foreign = e.foreign || code != msgpcode.Nil
	return d.skip()
}

// keys reads the further keys of a block: nil, a text, or an array of texts. Any other key makes
// the event foreign.
func (d decoder) keys(e *event) error {
	code, err := d.PeekCode()
	switch {
	case err != nil:
		return err
	case code == msgpcode.Nil:
		return d.DecodeNil()
	case msgpcode.IsString(code):
		key, err := d.DecodeString()
		e.addExtra(key)
		return err
	case isArray(code):
		return d.each(func() error { return d.key(e) })
	default:
		e.foreign = true
		return d.skip()
	}
}

// key reads one of several further keys of a block.
func (d decoder) key(e *event) error {
	code, err := d.PeekCode()
	if err != nil {
		return err
	}
	if !msgpcode.IsString(code) {
		e.foreign = e.foreign || code != msgpcode.Nil
		return d.skip()
	}
	key, err := d.DecodeString()
	e.addExtra(key)
	return err
}

// token reads a token id. Some engines with speculative decoding send pairs, for which there is no
// block name.
func (d decoder) token(e *event) error {
	code, err := d.PeekCode()
	if err != nil {
		return err
	}
	if isArray(code) {
		e.foreign = true
		return d.skip()
	}
	id, err := d.DecodeUint32()
	e.tokens = append(e.tokens, id)
	return err
}

// hash reads an engine's block hash: a number or, from some engines, bytes. It returns nil for nil
// and for empty bytes.
func (d decoder) hash() (*uint64, error) {
	code, err := d.PeekCode()
	if err != nil {
		return nil, err
	}
	switch {
	case code == msgpcode.Nil:
		return nil, d.DecodeNil()
	case msgpcode.IsBin(code) || msgpcode.IsString(code):
		b, err := d.DecodeBytes()
		if err != nil || len(b) == 0 {
			return nil, err
		}
		return new(xxhash.Sum64(b)), nil
	default:
		h, err := d.DecodeUint64() // a negative number as its two's complement
		return &h, err
	}
}

// each calls f for each element of an array, or not at all for nil.
func (d decoder) each(f func() error) error {
	n, err := d.DecodeArrayLen()
	for ; err == nil && n > 0; n-- {
		err = f()
	}
	return err
}

// skip reads a value of any depth without recursion.
func (d decoder) skip() error {
	for values := 1; values > 0; values-- {
		code, err := d.PeekCode()
		if err != nil {
			return err
		}
		var n int
		switch {
		case isArray(code):
			n, err = d.DecodeArrayLen()
			values += n
		case isMap(code):
			n, err = d.DecodeMapLen()
			values += 2 * n
		default:
			err = d.Skip()
		}
		if err != nil {
			return err
		}
	}
	return nil
}
