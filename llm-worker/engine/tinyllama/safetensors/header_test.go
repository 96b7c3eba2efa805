package safetensors_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/whence-dev/whence/llm-worker/engine/tinyllama/safetensors"
)

// file returns a file with a header and this many bytes of data.
func file(header string, data int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), make([]byte, data)...)
}

func read(b []byte) ([]safetensors.Tensor, error) {
	return safetensors.ReadHeader(bytes.NewReader(b), int64(len(b)))
}

func TestTensorsAreInTheOrderOfTheData(t *testing.T) {
	r := bytes.NewReader(file(`{"__metadata__":{"format":"pt"},
		"b":{"dtype":"F32","shape":[2,1],"data_offsets":[6,14]},
		"a":{"dtype":"BF16","shape":[3],"data_offsets":[0,6]},
		"none":{"dtype":"F32","shape":[0],"data_offsets":[6,6]}}   `, 14))
	tensors, err := safetensors.ReadHeader(r, r.Size())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tensor := range tensors {
		names = append(names, tensor.Name)
	}
	if want := []string{"a", "none", "b"}; !slices.Equal(names, want) {
		t.Errorf("tensors %v, want %v", names, want)
	}
	if r.Len() != 14 {
		t.Errorf("%d bytes left, want the data", r.Len())
	}
	if err := tensors[2].Check(2, 1); err != nil {
		t.Error(err)
	}
}

func TestBrokenHeadersAreRefused(t *testing.T) {
	huge := binary.LittleEndian.AppendUint64(nil, math.MaxUint64)
	for want, b := range map[string][]byte{
		"unexpected EOF":            {1, 2, 3},
		"more than the format's":    append(huge, "{}"...),
		"but the file has 2 after":  append(binary.LittleEndian.AppendUint64(nil, 3), "{}"...),
		"parse the header":          file(`{"a":`, 0),
		"cannot unmarshal":          file(`[]`, 0),
		"not a begin and an end":    file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}}`, 4),
		"data_offsets []":           file(`{"a":{"dtype":"F32","shape":[1]}}`, 4),
		"data_offsets [-4 0]":       file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[-4,0]}}`, 4),
		"shape [-1]":                file(`{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}`, 4),
		"byte 0 comes next":         file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}`, 8),
		"byte 4 comes next":         file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}}`, 6),
		"end at byte 8":             file(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`, 4),
		"end at byte 4 of the data": file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, 8),
	} {
		if tensors, err := read(b); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v, want an error with %q", b, tensors, err, want)
		}
	}
}

func TestFileShorterThanItsSizeIsAnError(t *testing.T) {
	b := file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, 4)
	if _, err := safetensors.ReadHeader(bytes.NewReader(b[:20]), int64(len(b))); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("header: %v", err)
	}
	tensor := safetensors.Tensor{Name: "a", DType: "F32", Shape: []int{2}, End: 8}
	if err := tensor.ReadFloats(bytes.NewReader(b[:6]), make([]float32, 2)); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("data: %v", err)
	}
}

func TestCheckRefusesByName(t *testing.T) {
	good := safetensors.Tensor{Name: "w", DType: "F32", Shape: []int{2, 3}, End: 24}
	if err := good.Check(2, 3); err != nil {
		t.Error(err)
	}
	for want, tensor := range map[string]safetensors.Tensor{
		`"w" has shape [3 2], not [2 3]`:    {Name: "w", DType: "F32", Shape: []int{3, 2}, End: 24},
		`"w" has dtype "I64"`:               {Name: "w", DType: "I64", Shape: []int{2, 3}, End: 48},
		`"w" takes 12 bytes, but its shape`: {Name: "w", DType: "F32", Shape: []int{2, 3}, End: 12},
	} {
		if err := tensor.Check(2, 3); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", tensor, err, want)
		}
	}
	absurd := safetensors.Tensor{DType: "F32", Shape: []int{1 << 40, 1 << 40}}
	if err := absurd.Check(1<<40, 1<<40); err == nil {
		t.Error("an overflowing shape was accepted")
	}
}

func TestNumbersAreWidened(t *testing.T) {
	inf := float32(math.Inf(1))
	for _, c := range []struct {
		dtype string
		bytes []byte
		want  []float32
	}{
		{"F32", binary.LittleEndian.AppendUint32(nil, math.Float32bits(-1.25e-30)), []float32{-1.25e-30}},
		{"BF16", []byte{0x80, 0x3f, 0x20, 0xc1, 0x80, 0x7f}, []float32{1, -10, inf}},
		{"F16", []byte{0x00, 0x3c, 0x00, 0xc9, 0x00, 0x7c, 0x01, 0x00, 0xff, 0x03, 0x00, 0x80, 0xff, 0x7b},
			[]float32{1, -10, inf, 0x1p-24, 1023 * 0x1p-24, float32(math.Copysign(0, -1)), 65504}},
	} {
		tensor := safetensors.Tensor{Name: "w", DType: c.dtype, Shape: []int{len(c.want)}, End: int64(len(c.bytes))}
		if err := tensor.Check(len(c.want)); err != nil {
			t.Fatal(err)
		}
		got := make([]float32, len(c.want))
		if err := tensor.ReadFloats(bytes.NewReader(c.bytes), got); err != nil {
			t.Fatal(err)
		}
		for i := range got {
			if math.Float32bits(got[i]) != math.Float32bits(c.want[i]) {
				t.Errorf("%s: %v, want %v", c.dtype, got, c.want)
			}
		}
	}
}

func FuzzReadHeader(f *testing.F) {
	f.Add(file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, 4), int64(66))
	f.Add(file(`{"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},"__metadata__":3}`, 4), int64(1<<62))
	f.Add(file(`{"a":{"shape":[9223372036854775807,2],"data_offsets":[0,9223372036854775807]}}`, 0), int64(-1))
	f.Fuzz(func(t *testing.T, b []byte, size int64) {
		for _, size := range []int64{int64(len(b)), size} {
			tensors, err := safetensors.ReadHeader(bytes.NewReader(b), size)
			if err != nil {
				continue
			}
			var end int64
			for _, tensor := range tensors {
				if tensor.Begin != end || tensor.End < tensor.Begin || tensor.End > size {
					t.Fatalf("%+v after byte %d of %d", tensor, end, size)
				}
				end = tensor.End
				if n := tensor.End - tensor.Begin; n < 1<<16 && tensor.Check(tensor.Shape...) == nil {
					length := 1
					for _, d := range tensor.Shape {
						length *= d
					}
					_ = tensor.ReadFloats(bytes.NewReader(make([]byte, n)), make([]float32, length))
				}
			}
		}
	})
}
