package tinyllama

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/whence-dev/whence/llm-worker/engine/tinyllama/matrix"
	"github.com/whence-dev/whence/llm-worker/engine/tinyllama/safetensors"
)

// A loadPlan assigns a destination to each tensor of a Hugging Face directory. Load refuses a
// directory that lacks one of them, or has one of another shape, before it allocates anything
// large. Several tensors may go into one matrix or one vector, one after another.
type loadPlan struct {
	parts    map[string]planPart
	vectors  map[*[]float32]int // lengths
	matrices map[**matrix.Matrix]*matrixPlan
	bytes    int64 // of the tensors in the files; set by check
}

// A matrixPlan is the size of a matrix.
type matrixPlan struct {
	rows, columns int
	bf16          bool // all of its tensors are BF16
}

// A planPart is the destination of a tensor: a vector, or a matrix.
type planPart struct {
	shape  []int
	vector *[]float32
	matrix **matrix.Matrix
	offset int // in the vector, or the first row
}

// newLoadPlan returns a plan without tensors.
func newLoadPlan() *loadPlan {
	return &loadPlan{parts: map[string]planPart{}, vectors: map[*[]float32]int{}, matrices: map[**matrix.Matrix]*matrixPlan{}}
}

// Vector plans a tensor for a vector, after those that are planned for it.
func (p *loadPlan) Vector(into *[]float32, name string, length int) {
	p.parts[name] = planPart{shape: []int{length}, vector: into, offset: p.vectors[into]}
	p.vectors[into] += length
}

// Matrix plans a tensor for rows of a matrix, after those that are planned for it.
func (p *loadPlan) Matrix(into **matrix.Matrix, name string, rows, columns int) {
	m := p.matrices[into]
	if m == nil {
		m = &matrixPlan{columns: columns, bf16: true}
		p.matrices[into] = m
	}
	p.parts[name] = planPart{shape: []int{rows, columns}, matrix: into, offset: m.rows}
	m.rows += rows
}

// Load reads the planned tensors, and keeps matrices as "f32", "bf16" or "int8", or, with any other
// format, as they are stored: BF16 as bf16, and all others as f32. It calls progress, unless it is nil,
// with the bytes so far and in all.
func (p *loadPlan) Load(fsys fs.FS, format string, progress func(done, total int64)) error {
	shards, err := safetensors.FindShards(fsys)
	if err != nil {
		return err
	}
	if err := p.check(fsys, shards); err != nil {
		return err
	}
	p.allocate(format)
	return p.read(fsys, shards, progress)
}

// check returns an error if the shards lack a planned tensor, before anything large is allocated.
func (p *loadPlan) check(fsys fs.FS, shards []safetensors.Shard) error {
	missing := make(map[string]bool, len(p.parts))
	for name := range p.parts {
		missing[name] = true
	}
	err := p.each(fsys, shards, func(t safetensors.Tensor, part planPart, _ io.Reader) error {
		delete(missing, t.Name)
		p.bytes += t.End - t.Begin
		if part.matrix != nil && t.DType != "BF16" {
			p.matrices[part.matrix].bf16 = false
		}
		return t.Check(part.shape...)
	})
	if err != nil || len(missing) == 0 {
		return err
	}
	var names []string
	for name := range missing {
		names = append(names, name)
	}
	slices.Sort(names)
	text := strings.Join(names[:min(len(names), 3)], ", ")
	if more := len(names) - 3; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return errors.New("missing tensors: " + text)
}

// allocate makes the vectors, and the matrices in a format.
func (p *loadPlan) allocate(format string) {
	for into, length := range p.vectors {
		*into = make([]float32, length)
	}
	for into, m := range p.matrices {
		f := matrix.F32
		switch {
		case format == matrix.Int8.String():
			f = matrix.Int8
		case format == matrix.BF16.String(), m.bf16 && format != matrix.F32.String():
			f = matrix.BF16
		}
		*into = matrix.New(f, m.rows, m.columns)
	}
}

// read fills what allocate has made.
func (p *loadPlan) read(fsys fs.FS, shards []safetensors.Shard, progress func(done, total int64)) error {
	var done int64
	var values []float32
	return p.each(fsys, shards, func(t safetensors.Tensor, part planPart, r io.Reader) error {
		if part.vector != nil {
			done += t.End - t.Begin
			return t.ReadFloats(r, (*part.vector)[part.offset:part.offset+part.shape[0]])
		}
		// Some rows at a time, which the matrix converts.
		rows, columns := part.shape[0], part.shape[1]
		size := (t.End - t.Begin) / int64(rows)
		for row := 0; row < rows; {
			n := min(rows-row, max(1, 64<<10/columns))
			if len(values) < n*columns {
				values = make([]float32, n*columns)
			}
			some := safetensors.Tensor{Name: t.Name, DType: t.DType, Begin: t.Begin, End: t.Begin + int64(n)*size}
			if err := some.ReadFloats(r, values[:n*columns]); err != nil {
				return err
			}
			(*part.matrix).Set(part.offset+row, values[:n*columns])
			row += n
			done += int64(n) * size
			if progress != nil {
				progress(done, p.bytes)
			}
		}
		return nil
	})
}

// each calls visit for every planned tensor in the shards; visit may read its data from r. Other
// tensors, such as the buffers that some exporters write, are skipped.
func (p *loadPlan) each(fsys fs.FS, shards []safetensors.Shard, visit func(t safetensors.Tensor, part planPart, r io.Reader) error) error {
	for _, s := range shards {
		err := s.Each(fsys, func(t safetensors.Tensor, r io.Reader) error {
			if part, ok := p.parts[t.Name]; ok {
				return visit(t, part, r)
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("%s: %w", s.File, err)
		}
	}
	return nil
}
