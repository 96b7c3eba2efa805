package gguf

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// whole are the tensors outside of layers, by GGUF's names, and parts those of a layer.
var (
	whole = map[string]string{"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
	parts = map[string]string{
		"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
		"attn_qkv": "self_attn.qkv_proj", "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
		"attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm",
		"ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
	}
)

// ropeFactors is the tensor that divides the frequencies of RoPE. It becomes a part of config.json.
const ropeFactors = "rope_freqs.weight"

// rename returns Hugging Face's name of a tensor, and the number of its heads if their rows are in
// the order of llama.cpp, or 0.
func (f family) rename(name string) (renamed string, heads int, ok bool) {
	base, suffix, _ := strings.Cut(name, ".")
	if renamed, ok := whole[base]; ok && suffix == "weight" {
		return renamed + ".weight", 0, true
	}
	if base != "blk" {
		return "", 0, false
	}
	layer, rest, _ := strings.Cut(suffix, ".")
	base, suffix, _ = strings.Cut(rest, ".")
	if n, err := strconv.Atoi(layer); err != nil || n < 0 || strconv.Itoa(n) != layer || suffix != "weight" && suffix != "bias" {
		return "", 0, false
	}
	part, ok := parts[base]
	if f.fused && base == "ffn_up" {
		part = "mlp.gate_up_proj"
	}
	switch {
	case f.interleaved && base == "attn_q":
		heads = f.heads
	case f.interleaved && base == "attn_k":
		heads = f.kvHeads
	}
	return "model.layers." + layer + "." + part + "." + suffix, heads, ok
}

// A layout is a safetensors file that does not exist: its header, and where its data come from.
type layout struct {
	header []byte
	data   []entry // in the order of begin
}

// An entry is one tensor of a layout.
type entry struct {
	tensor
	begin    int64 // in the layout's data
	rows     int
	columns  int
	rowBytes int // in the layout
	heads    int // whose rows llama.cpp has interleaved; 0 for none
}

func (l *layout) size() int64 {
	last := l.data[len(l.data)-1]
	return int64(len(l.header)) + last.begin + int64(last.rows)*int64(last.rowBytes)
}

var dtypeBytes = map[string]int{"F32": 4, "F16": 2, "BF16": 2}

// layout lists the tensors of the file in the order of their data.
func (h *header) layout(f family) (*layout, error) {
	l, begin, end := &layout{}, int64(0), int64(0)
	header := map[string]any{}
	tensors := slices.Clone(h.tensors)
	slices.SortFunc(tensors, func(a, b tensor) int { return int(min(1, max(-1, a.offset-b.offset))) })
	for _, t := range tensors {
		if t.offset < end {
			return nil, fmt.Errorf("tensor %q overlaps the tensor before it", t.name)
		}
		end = t.offset + t.size
		if t.name == ropeFactors {
			continue
		}
		name, heads, ok := f.rename(t.name)
		if !ok {
			return nil, fmt.Errorf("tensor %q is unknown; without it answers would be wrong", t.name)
		}
		e := entry{tensor: t, begin: begin, rows: 1, columns: t.shape[len(t.shape)-1], heads: heads}
		if len(t.shape) == 1 && heads > 0 { // a bias: one number for each row of its matrix
			e.rows, e.columns = e.columns, 1
		}
		for _, n := range t.shape[:len(t.shape)-1] {
			e.rows *= n
		}
		if e.columns%t.format.elements != 0 {
			return nil, fmt.Errorf("tensor %q is a vector in the format %s, which is not supported", t.name, t.format.name)
		}
		if heads > 0 && e.rows%(2*heads) != 0 {
			return nil, fmt.Errorf("tensor %q has %d rows for %d heads", t.name, e.rows, heads)
		}
		e.rowBytes = e.columns * dtypeBytes[t.format.dtype]
		size := int64(e.rows) * int64(e.rowBytes)
		if size > math.MaxInt64-begin {
			return nil, errors.New("the tensors are too large")
		}
		header[name] = map[string]any{"dtype": t.format.dtype, "shape": t.shape, "data_offsets": []int64{begin, begin + size}}
		l.data = append(l.data, e)
		begin += size
	}
	if len(l.data) == 0 {
		return nil, errors.New("the file has no tensors")
	}
	b, err := json.Marshal(header)
	if err != nil {
		return nil, err
	}
	l.header = append(binary.LittleEndian.AppendUint64(nil, uint64(len(b))), b...)
	return l, nil
}

// source returns the row of the file that becomes a row of the layout. llama.cpp rotates pairs of
// neighbours and Hugging Face the two halves of a head, so the converter has interleaved the halves.
func (e *entry) source(row int) int {
	if e.heads == 0 {
		return row
	}
	dim := e.rows / e.heads
	head, at := row/dim, row%dim
	return head*dim + at%(dim/2)*2 + at/(dim/2)
}

// read sets row to a row of the layout, as float32 or as it is in the file.
func (e *entry) read(file io.ReaderAt, number int, row []byte) error {
	size := e.columns / e.format.elements * e.format.bytes
	at := e.offset + int64(e.source(number))*int64(size)
	if e.format.decode == nil {
		_, err := file.ReadAt(row, at)
		return err
	}
	raw := make([]byte, size)
	if _, err := file.ReadAt(raw, at); err != nil {
		return err
	}
	values := make([]float32, e.format.elements)
	for ; len(raw) > 0; raw = raw[e.format.bytes:] {
		e.format.decode(values, raw)
		for i, v := range values {
			binary.LittleEndian.PutUint32(row[4*i:], math.Float32bits(v))
		}
		row = row[4*len(values):]
	}
	return nil
}

// A weightsFile reads a layout. It holds one row at a time.
type weightsFile struct {
	info   fs.FileInfo
	file   *os.File
	layout *layout

	at    int64
	row   []byte
	begin int64 // of row
}

func (f *weightsFile) Stat() (fs.FileInfo, error) { return f.info, nil }
func (f *weightsFile) Close() error               { return f.file.Close() }

// Read implements io.Reader.
func (f *weightsFile) Read(b []byte) (n int, err error) {
	header := int64(len(f.layout.header))
	switch {
	case f.at >= f.info.Size():
		return 0, io.EOF
	case f.at < header:
		n = copy(b, f.layout.header[f.at:])
		f.at += int64(n)
		return n, nil
	}
	for n < len(b) && f.at < f.info.Size() {
		if f.at < f.begin || f.at >= f.begin+int64(len(f.row)) {
			if err := f.load(f.at - header); err != nil {
				return n, err
			}
		}
		k := copy(b[n:], f.row[f.at-f.begin:])
		n, f.at = n+k, f.at+int64(k)
	}
	return n, nil
}

// load loads the row with a byte of the data.
func (f *weightsFile) load(at int64) error {
	data := f.layout.data
	e := &data[sort.Search(len(data), func(i int) bool { return data[i].begin > at })-1]
	number := int((at - e.begin) / int64(e.rowBytes))
	if cap(f.row) < e.rowBytes {
		f.row = make([]byte, e.rowBytes)
	}
	f.row = f.row[:e.rowBytes]
	f.begin = int64(len(f.layout.header)) + e.begin + int64(number)*int64(e.rowBytes)
	if err := e.read(f.file, number, f.row); err != nil {
		f.row = f.row[:0]
		if errors.Is(err, io.EOF) { // the file has become shorter
			err = io.ErrUnexpectedEOF
		}
		return fmt.Errorf("read tensor %q: %w", e.name, err)
	}
	return nil
}

// Seek implements io.Seeker.
func (f *weightsFile) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += f.at
	case io.SeekEnd:
		offset += f.info.Size()
	}
	if offset < 0 {
		return 0, fs.ErrInvalid
	}
	f.at = offset
	return offset, nil
}
