package gguf

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
)

// Bounds of a header. They are far above any real file.
const (
	maxPairs     = 1 << 16
	maxTensors   = 1 << 16
	maxString    = 16 << 20 // bytes
	maxElements  = 1 << 24  // of an array
	maxName      = 256      // bytes of a tensor's name
	maxDims      = 4
	maxDim       = 1 << 30
	maxAlignment = 1 << 20
)

// A header is what precedes the data of a file.
type header struct {
	meta    map[string]any // uint64, int64, float64, bool, string, []string or numberList
	tensors []tensor
	data    int64 // offset of the data in the file
}

// A tensor is one entry of a header. Its data lie within the file.
type tensor struct {
	name   string
	shape  []int // the last dimension is contiguous, as in Hugging Face's files
	format format
	offset int64 // in the file
	size   int64 // in bytes
}

// A decoder reads the header of a file of a known size, and never allocates more than in proportion
// to the bytes that have arrived.
type decoder struct {
	r    *bufio.Reader
	left int64 // bytes of the file that are still to be read
	err  error // the first; after it all values are zero
}

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf(format, args...)
	}
}

func (d *decoder) bytes(n int) []byte {
	if d.err != nil {
		return make([]byte, n)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(d.r, b); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		d.fail("read the header: %w", err)
	}
	d.left -= int64(n)
	return b
}

func (d *decoder) u8() uint8   { return d.bytes(1)[0] }
func (d *decoder) u16() uint16 { return binary.LittleEndian.Uint16(d.bytes(2)) }
func (d *decoder) u32() uint32 { return binary.LittleEndian.Uint32(d.bytes(4)) }
func (d *decoder) u64() uint64 { return binary.LittleEndian.Uint64(d.bytes(8)) }

// count reads a number of things that take at least size bytes each.
func (d *decoder) count(what string, most, size int64) int {
	n := d.u64()
	if d.err == nil && (n > uint64(most) || int64(n)*size > d.left) {
		d.fail("the header claims %d %s; at most %d are allowed, and %d bytes are left", n, what, most, max(0, d.left))
	}
	if d.err != nil {
		return 0
	}
	return int(n)
}

func (d *decoder) string(most int64) string {
	return string(d.bytes(d.count("bytes of a string", most, 1)))
}

type scalar struct {
	size int64
	read func(*decoder) any
}

// The types of metadata values.
const (
	typeString = 8
	typeArray  = 9
)

// scalars are the other types: their size, and how they are read.
var scalars = map[uint32]scalar{
	0:  {1, func(d *decoder) any { return uint64(d.u8()) }},
	1:  {1, func(d *decoder) any { return int64(int8(d.u8())) }},
	2:  {2, func(d *decoder) any { return uint64(d.u16()) }},
	3:  {2, func(d *decoder) any { return int64(int16(d.u16())) }},
	4:  {4, func(d *decoder) any { return uint64(d.u32()) }},
	5:  {4, func(d *decoder) any { return int64(int32(d.u32())) }},
	6:  {4, func(d *decoder) any { return float64(math.Float32frombits(d.u32())) }},
	7:  {1, func(d *decoder) any { return d.u8() != 0 }},
	10: {8, func(d *decoder) any { return d.u64() }},
	11: {8, func(d *decoder) any { return int64(d.u64()) }},
	12: {8, func(d *decoder) any { return math.Float64frombits(d.u64()) }},
}

func (d *decoder) value(kind uint32) any {
	switch scalar, ok := scalars[kind]; {
	case kind == typeString:
		return d.string(maxString)
	case kind == typeArray:
		return d.array(d.u32())
	case ok:
		return scalar.read(d)
	default:
		d.fail("a metadata value has the unknown type %d", kind)
		return nil
	}
}

// A numberList is an array of numbers or booleans as it is in the file, so that it takes no more memory
// than there.
type numberList struct {
	kind uint32
	data []byte
}

func (n numberList) len() int { return len(n.data) / int(scalars[n.kind].size) }

// ints returns the values of an array of whole numbers; ok is false for other arrays.
func (n numberList) ints() (all []int64, ok bool) {
	d := &decoder{r: bufio.NewReader(bytes.NewReader(n.data))}
	for range n.len() {
		switch v := scalars[n.kind].read(d).(type) {
		case int64:
			all = append(all, v)
		case uint64:
			all = append(all, int64(min(v, math.MaxInt64)))
		default:
			return nil, false
		}
	}
	return all, d.err == nil
}

// floats returns the values of an array of numbers; ok is false for other arrays.
func (n numberList) floats() (all []float32, ok bool) {
	d := &decoder{r: bufio.NewReader(bytes.NewReader(n.data))}
	for range n.len() {
		switch v := scalars[n.kind].read(d).(type) {
		case int64:
			all = append(all, float32(v))
		case uint64:
			all = append(all, float32(v))
		case float64:
			all = append(all, float32(v))
		default:
			return nil, false
		}
	}
	return all, d.err == nil
}

// array reads an array of strings or numbers. Arrays of arrays have no use in the models that we
// read.
func (d *decoder) array(kind uint32) any {
	scalar, ok := scalars[kind]
	switch {
	case kind == typeString:
		var list []string
		for n := d.count("strings", maxElements, 8); len(list) < n && d.err == nil; {
			list = append(list, d.string(maxString))
		}
		return list
	case ok:
		n := d.count("elements", maxElements, scalar.size)
		return numberList{kind, d.bytes(n * int(scalar.size))}
	default:
		d.fail("a metadata array has elements of type %d, which are not supported", kind)
		return nil
	}
}

// newDecoder returns a decoder of a file of size bytes.
func newDecoder(r io.Reader, size int64) *decoder {
	return &decoder{r: bufio.NewReaderSize(r, 1<<16), left: size}
}

// metadata reads the metadata of a file, and the number of its tensors.
func (d *decoder) metadata() (h *header, tensors int, err error) {
	if magic := d.u32(); d.err == nil && magic != 0x46554747 {
		return nil, 0, errors.New("the file does not begin with GGUF")
	}
	if version := d.u32(); d.err == nil && version != 2 && version != 3 {
		return nil, 0, fmt.Errorf("version %d of GGUF is not supported, only 2 and 3 in little-endian order", version)
	}
	tensors = d.count("tensors", maxTensors, 24)
	pairs := d.count("metadata pairs", maxPairs, 13)
	h = &header{meta: map[string]any{}}
	for range pairs {
		key := d.string(1 << 16)
		value := d.value(d.u32())
		if d.err != nil {
			return nil, 0, d.err
		}
		if _, twice := h.meta[key]; twice {
			return nil, 0, fmt.Errorf("the metadata key %.100q appears twice", key)
		}
		h.meta[key] = value
	}
	return h, tensors, d.err
}

// tensors reads the n tensors of a file of size bytes, whose metadata have been read.
func (d *decoder) tensors(h *header, n int, size int64) error {
	names := map[string]bool{}
	for range n {
		t := d.tensor()
		if d.err != nil {
			return d.err
		}
		if names[t.name] {
			return fmt.Errorf("tensor %q appears twice", t.name)
		}
		names[t.name] = true
		h.tensors = append(h.tensors, t)
	}
	return h.place(size, size-d.left)
}

// tensor reads an entry. Its offset is relative to the data.
func (d *decoder) tensor() tensor {
	t := tensor{name: d.string(maxName)}
	dims := d.u32()
	if d.err == nil && (dims < 1 || dims > maxDims) {
		d.fail("tensor %q has %d dimensions", t.name, dims)
	}
	if d.err != nil {
		return t
	}
	elements := int64(1)
	for range dims {
		n := d.u64()
		if n < 1 || n > maxDim || elements > math.MaxInt64/8/int64(n) {
			d.fail("tensor %q has a dimension of %d", t.name, n)
			return t
		}
		elements *= int64(n)
		t.shape = append([]int{int(n)}, t.shape...) // the file has the contiguous dimension first
	}
	kind, offset := d.u32(), d.u64()
	if d.err != nil {
		return t
	}
	var ok bool
	if t.format, ok = formats[kind]; !ok {
		d.fail("tensor %q has the format %s, which is not supported", t.name, formatName(kind))
		return t
	}
	if columns := t.shape[len(t.shape)-1]; columns%t.format.elements != 0 {
		d.fail("tensor %q has rows of %d numbers, but %s has blocks of %d", t.name, columns, t.format.name, t.format.elements)
	}
	if offset > math.MaxInt64/2 {
		d.fail("tensor %q is at byte %d", t.name, offset)
	}
	t.offset, t.size = int64(offset), elements/int64(t.format.elements)*int64(t.format.bytes)
	return t
}

// place checks that all tensors lie within the file, whose header has end bytes.
func (h *header) place(size, end int64) error {
	alignment := int64(h.number("general.alignment", 32))
	if alignment < 1 || alignment > maxAlignment {
		return fmt.Errorf("general.alignment is %d", alignment)
	}
	h.data = (end + alignment - 1) / alignment * alignment
	for i := range h.tensors {
		t := &h.tensors[i]
		if t.offset%alignment != 0 {
			return fmt.Errorf("tensor %q is at byte %d of the data, which is not a multiple of %d", t.name, t.offset, alignment)
		}
		t.offset += h.data
		if t.size > size || t.offset > size-t.size {
			return fmt.Errorf("tensor %q ends after byte %d, the end of the file", t.name, size)
		}
	}
	return nil
}

// tensor returns a tensor, or nil.
func (h *header) tensor(name string) *tensor {
	for i := range h.tensors {
		if h.tensors[i].name == name {
			return &h.tensors[i]
		}
	}
	return nil
}

// finite is number, and refuses NaN and infinities.
func (h *header) finite(key string, otherwise float64) (float64, error) {
	v := h.number(key, otherwise)
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return 0, fmt.Errorf("%s is %v", key, v)
	}
	return v, nil
}

// number returns a number of the metadata.
func (h *header) number(key string, otherwise float64) float64 {
	switch v := h.meta[key].(type) {
	case uint64:
		return float64(v)
	case int64:
		return float64(v)
	case float64:
		return v
	default:
		return otherwise
	}
}

func (h *header) text(key string) string {
	s, _ := h.meta[key].(string) // another type counts as missing
	return s
}
