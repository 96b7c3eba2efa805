// Package safetensors reads the weight files of Hugging Face models from any io.Reader, front to
// back.
//
// A file is eight bytes with the length of the header, the header in JSON (name, dtype, shape and
// place of each tensor), and the data. ReadHeader trusts nothing: the returned tensors lie within
// the file, in the order of the data, without holes or overlaps, as the format demands. Whatever
// sizes the file claims, ReadHeader allocates in proportion to the bytes that the reader delivers.
// The reader is then at the first byte of data.
package safetensors

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
)

// maxHeader is the limit of the reference implementation.
const maxHeader = 100_000_000

// A Tensor is one entry of a header.
type Tensor struct {
	Name  string
	DType string // "F32", "BF16" and so on
	Shape []int
	// Begin and End are its place in the data, in bytes.
	Begin, End int64
}

// ReadHeader reads the header of a file of size bytes and returns its tensors, sorted by place.
func ReadHeader(r io.Reader, size int64) ([]Tensor, error) {
	var prefix [8]byte
	if _, err := io.ReadFull(r, prefix[:]); err != nil {
		return nil, fmt.Errorf("read the length of the header: %w", noEOF(err))
	}
	length := binary.LittleEndian.Uint64(prefix[:])
	if length > maxHeader {
		return nil, fmt.Errorf("the header claims %d bytes, more than the format's limit of %d", length, maxHeader)
	}
	if rest := size - int64(len(prefix)); int64(length) > rest {
		return nil, fmt.Errorf("the header claims %d bytes, but the file has %d after its length", length, rest)
	}
	// The size may be wrong, too: the limit is the bytes that actually arrive.
	header, err := io.ReadAll(io.LimitReader(r, int64(length)))
	if err == nil && uint64(len(header)) < length {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, fmt.Errorf("read the header: %w", err)
	}
	return parseHeader(header, size-int64(len(prefix))-int64(length))
}

func parseHeader(header []byte, dataSize int64) ([]Tensor, error) {
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(header, &raw); err != nil {
		return nil, fmt.Errorf("parse the header: %w", err)
	}
	delete(raw, "__metadata__")
	tensors := make([]Tensor, 0, len(raw))
	for name, entry := range raw {
		t, err := parseTensor(name, entry)
		if err != nil {
			return nil, fmt.Errorf("tensor %q: %w", name, err)
		}
		tensors = append(tensors, t)
	}
	slices.SortFunc(tensors, func(a, b Tensor) int {
		// An empty tensor sorts before the tensor that begins at its place.
		return cmp.Or(cmp.Compare(a.Begin, b.Begin), cmp.Compare(a.End, b.End), cmp.Compare(a.Name, b.Name))
	})
	var end int64
	for _, t := range tensors {
		if t.Begin != end {
			return nil, fmt.Errorf("tensor %q begins at byte %d of the data; byte %d comes next", t.Name, t.Begin, end)
		}
		end = t.End
	}
	if end != dataSize {
		return nil, fmt.Errorf("the tensors end at byte %d of the data, but the file has %d", end, dataSize)
	}
	return tensors, nil
}

func parseTensor(name string, entry []byte) (Tensor, error) {
	var e struct {
		DType   string  `json:"dtype"`
		Shape   []int64 `json:"shape"`
		Offsets []int64 `json:"data_offsets"`
	}
	if err := json.Unmarshal(entry, &e); err != nil {
		return Tensor{}, err
	}
	if len(e.Offsets) != 2 || e.Offsets[0] < 0 || e.Offsets[1] < e.Offsets[0] {
		return Tensor{}, fmt.Errorf("data_offsets %v are not a begin and an end", e.Offsets)
	}
	t := Tensor{Name: name, DType: e.DType, Begin: e.Offsets[0], End: e.Offsets[1]}
	for _, n := range e.Shape {
		if n < 0 || int64(int(n)) != n {
			return Tensor{}, fmt.Errorf("shape %v", e.Shape)
		}
		t.Shape = append(t.Shape, int(n))
	}
	return t, nil
}

// noEOF converts io.EOF, so that a truncated file differs from a complete one.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
