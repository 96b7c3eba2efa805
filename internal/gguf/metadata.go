package gguf

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"strconv"
	"time"
)

// FromMetadata returns the directory of a model whose metadata another program has read from its GGUF
// file, as JSON. It has no weights.
func FromMetadata(metadata map[string]json.RawMessage) (fs.FS, error) {
	h := &header{meta: map[string]any{}}
	for key, text := range metadata {
		value, err := readValue(text)
		if err != nil {
			return nil, fmt.Errorf("%.100q: %w", key, err)
		}
		if value != nil {
			h.meta[key] = value
		}
	}
	if tokens, ok := h.meta["tokenizer.ggml.tokens"].([]string); !ok || len(tokens) == 0 {
		return nil, errors.New("the metadata have no tokenizer.ggml.tokens")
	}
	return &model{header: h, time: time.Unix(0, 0)}, nil
}

// readValue reads a value of the metadata, or nil if it has none.
func readValue(text json.RawMessage) (any, error) {
	if len(text) == 0 {
		return nil, nil
	}
	switch text[0] {
	case '"':
		var s string
		err := json.Unmarshal(text, &s)
		return s, err
	case 't', 'f':
		return text[0] == 't', nil
	case '[':
		return readList(text)
	case 'n', '{':
		return nil, nil
	}
	return readNumber(json.Number(text))
}

// readNumber returns an int64, a uint64 or a float64.
func readNumber(n json.Number) (any, error) {
	if i, err := n.Int64(); err == nil {
		return i, nil
	}
	if u, err := strconv.ParseUint(n.String(), 10, 64); err == nil {
		return u, nil
	}
	return n.Float64()
}

// readList returns a []string or a numberList.
func readList(text json.RawMessage) (any, error) {
	var words []string
	if json.Unmarshal(text, &words) == nil {
		return words, nil
	}
	var numbers []float64
	if err := json.Unmarshal(text, &numbers); err != nil {
		return nil, errors.New("an array has neither texts nor numbers")
	}
	const int64s, float64s = 11, 12
	list := numberList{kind: int64s, data: make([]byte, 0, 8*len(numbers))}
	for _, n := range numbers {
		if n != math.Trunc(n) || math.Abs(n) > 1<<53 {
			list.kind = float64s
		}
	}
	for _, n := range numbers {
		bits := math.Float64bits(n)
		if list.kind == int64s {
			bits = uint64(int64(n))
		}
		list.data = binary.LittleEndian.AppendUint64(list.data, bits)
	}
	return list, nil
}

// outline makes the config.json of a description: what a server's own answers leave open.
func (m *model) outline() ([]byte, error) {
	h := m.header
	name := h.text("general.architecture")
	c := map[string]any{"model_type": name}
	if tokens, ok := h.meta["tokenizer.ggml.tokens"].([]string); ok {
		c["vocab_size"] = len(tokens)
	}
	if _, ok := h.meta[name+".context_length"]; ok {
		n, err := h.size(name + ".context_length")
		if err != nil {
			return nil, err
		}
		c["max_position_embeddings"] = n
	}
	return json.Marshal(c)
}
