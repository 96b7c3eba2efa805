// Package gguftest writes GGUF files for tests.
package gguftest

import (
	"encoding/binary"
	"maps"
	"math"
	"slices"
)

// A File describes a GGUF file, which may be broken.
type File struct {
	Meta    map[string]any // uint32, float32, bool, string, []string, []int32 or []float32
	Tensors []Tensor
	Shift   int64 // added to the offsets of the tensors, for broken files
	Overlap bool  // all tensors are at the beginning, for broken files
}

// A Tensor is a tensor of a File. Kind is ggml's number of its format.
type Tensor struct {
	Name string
	Dims []uint64 // the contiguous dimension first
	Kind uint32
	Data []byte
}

func text(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint64(b, uint64(len(s))), s...)
}

// Bytes returns the file.
func (p File) Bytes() []byte {
	le := binary.LittleEndian
	b := le.AppendUint32([]byte("GGUF"), 3)
	b = le.AppendUint64(le.AppendUint64(b, uint64(len(p.Tensors))), uint64(len(p.Meta)))
	for _, key := range slices.Sorted(maps.Keys(p.Meta)) {
		b = text(b, key)
		switch v := p.Meta[key].(type) {
		case uint32:
			b = le.AppendUint32(le.AppendUint32(b, 4), v)
		case float32:
			b = le.AppendUint32(le.AppendUint32(b, 6), math.Float32bits(v))
		case bool:
			b = append(le.AppendUint32(b, 7), map[bool]byte{true: 1}[v])
		case string:
			b = text(le.AppendUint32(b, 8), v)
		case []string:
			b = le.AppendUint64(le.AppendUint32(le.AppendUint32(b, 9), 8), uint64(len(v)))
			for _, s := range v {
				b = text(b, s)
			}
		case []int32:
			b = le.AppendUint64(le.AppendUint32(le.AppendUint32(b, 9), 5), uint64(len(v)))
			for _, n := range v {
				b = le.AppendUint32(b, uint32(n)) //nolint:gosec // the bits are the same
			}
		case []float32:
			b = le.AppendUint64(le.AppendUint32(le.AppendUint32(b, 9), 6), uint64(len(v)))
			for _, n := range v {
				b = le.AppendUint32(b, math.Float32bits(n))
			}
		}
	}
	var data []byte
	for _, t := range p.Tensors {
		b = le.AppendUint32(text(b, t.Name), uint32(len(t.Dims)))
		for _, n := range t.Dims {
			b = le.AppendUint64(b, n)
		}
		at := int64(len(data)) + p.Shift
		if p.Overlap {
			at = 0
		}
		b = le.AppendUint64(le.AppendUint32(b, t.Kind), uint64(at))
		data = append(data, t.Data...)
		data = append(data, make([]byte, (32-len(data)%32)%32)...)
	}
	b = append(b, make([]byte, (32-len(b)%32)%32)...)
	return append(b, data...)
}
