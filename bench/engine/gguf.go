package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
)

// Types of GGUF: of values, and of tensors.
const (
	typeUint32  = 4
	typeInt32   = 5
	typeFloat32 = 6
	typeString  = 8
	typeArray   = 9

	tensorF32 = 0
	tensorQ8  = 8

	alignment = 32
	block     = 32 // numbers with one scale in Q8_0
)

// A header is the beginning of a GGUF file under construction.
type header struct{ bytes []byte }

func (h *header) uint32(v uint32)        { h.bytes = binary.LittleEndian.AppendUint32(h.bytes, v) }
func (h *header) uint64(v uint64)        { h.bytes = binary.LittleEndian.AppendUint64(h.bytes, v) }
func (h *header) string(s string)        { h.uint64(uint64(len(s))); h.bytes = append(h.bytes, s...) }
func (h *header) key(s string, t uint32) { h.string(s); h.uint32(t) }

// metadata writes the model's properties, and a vocabulary of words without a meaning.
func (h *header) metadata(s shape) (count uint64) {
	text := func(key, value string) { h.key(key, typeString); h.string(value); count++ }
	number := func(key string, value int) { h.key(key, typeUint32); h.uint32(uint32(value)); count++ }
	float := func(key string, value float32) { h.key(key, typeFloat32); h.uint32(math.Float32bits(value)); count++ }
	array := func(key string, of uint32, n int, element func(i int)) {
		h.key(key, typeArray)
		h.uint32(of)
		h.uint64(uint64(n))
		for i := range n {
			element(i)
		}
		count++
	}
	text("general.architecture", "qwen2")
	number("general.file_type", 7) // mostly Q8_0
	number("qwen2.block_count", s.layers)
	number("qwen2.context_length", s.context)
	number("qwen2.embedding_length", s.hidden)
	number("qwen2.feed_forward_length", s.feedForward)
	number("qwen2.attention.head_count", s.heads)
	number("qwen2.attention.head_count_kv", s.kvHeads)
	float("qwen2.attention.layer_norm_rms_epsilon", epsilon)
	float("qwen2.rope.freq_base", theta)
	text("tokenizer.ggml.model", "gpt2")
	text("tokenizer.ggml.pre", "qwen2")
	array("tokenizer.ggml.tokens", typeString, s.vocab, func(i int) { h.string(fmt.Sprintf("w%d", i)) })
	array("tokenizer.ggml.token_type", typeInt32, s.vocab, func(int) { h.uint32(1) })
	array("tokenizer.ggml.merges", typeString, 1, func(int) { h.string("w 0") })
	number("tokenizer.ggml.eos_token_id", s.vocab-1)
	number("tokenizer.ggml.bos_token_id", s.vocab-1)
	return count
}

// size returns the bytes of a tensor, and its type: vectors stay float32, as llama.cpp wants.
func (m matrix) size() (bytes int, kind uint32) {
	if m.rows == 1 {
		return 4 * m.columns, tensorF32
	}
	return m.rows * m.columns / block * (block + 2), tensorQ8
}

func pad(n int) int { return (n + alignment - 1) / alignment * alignment }

func (s shape) gguf(w io.Writer) error {
	var properties, h header
	count, all, offset := properties.metadata(s), s.tensors(), 0
	h.bytes = append(h.bytes, "GGUF"...)
	h.uint32(3)
	h.uint64(uint64(len(all)))
	h.uint64(count)
	h.bytes = append(h.bytes, properties.bytes...)
	for _, m := range all {
		bytes, kind := m.size()
		h.string(m.gguf)
		if m.rows == 1 {
			h.uint32(1)
		} else {
			h.uint32(2)
		}
		h.uint64(uint64(m.columns))
		if m.rows > 1 {
			h.uint64(uint64(m.rows))
		}
		h.uint32(kind)
		h.uint64(uint64(offset))
		offset += pad(bytes)
	}
	h.bytes = append(h.bytes, make([]byte, pad(len(h.bytes))-len(h.bytes))...)
	if _, err := w.Write(h.bytes); err != nil {
		return err
	}
	var out []byte
	for i, m := range all {
		size, kind := m.size()
		if err := m.values(i, func(row []float32) error {
			if out = out[:0]; kind == tensorF32 {
				for _, v := range row {
					out = binary.LittleEndian.AppendUint32(out, math.Float32bits(v))
				}
			} else {
				for at := 0; at < len(row); at += block {
					out = appendQ8(out, row[at:at+block])
				}
			}
			_, err := w.Write(out)
			return err
		}); err != nil {
			return err
		}
		if _, err := w.Write(make([]byte, pad(size)-size)); err != nil {
			return err
		}
	}
	return nil
}

// appendQ8 appends a block of Q8_0: a scale in half precision, and the numbers in units of it.
func appendQ8(out []byte, values []float32) []byte {
	largest := float32(0)
	for _, v := range values {
		largest = max(largest, v, -v)
	}
	scale := largest / 127
	out = binary.LittleEndian.AppendUint16(out, half(scale))
	for _, v := range values {
		q := int8(0)
		if scale > 0 {
			q = int8(math.RoundToEven(float64(v / scale)))
		}
		out = append(out, byte(q))
	}
	return out
}

// half converts a number of the range of Q8_0's scales to half precision.
func half(v float32) uint16 {
	if v < 0x1p-14 { // a subnormal number, in units of 2^-24
		return uint16(math.RoundToEven(float64(v) * (1 << 24)))
	}
	bits := math.Float32bits(v) + 0xfff + math.Float32bits(v)>>13&1 // rounds to even
	return uint16(bits>>13 - 112<<10)
}
