package tinyllama

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/whence-dev/whence/llm-worker/engine/tinyllama/safetensors"
)

// Weights hold the weights of a model, all float32, and its config. They are immutable, and Models
// may share them.
type Weights struct {
	config *config
	eos    []uint32

	embedding []float32 // vocab × hidden
	layers    []layer
	norm      []float32
	head      linear // hidden to vocab
}

type layer struct {
	attentionNorm []float32
	qkv           linear    // rows of q, then of k, then of v
	queryNorm     []float32 // of each head; nil for none, as for keyNorm
	keyNorm       []float32
	output        linear
	mlpNorm       []float32
	gateUp        linear // rows of gate, then of up
	down          linear
}

// Load reads a Hugging Face directory of a supported architecture: config.json, generation_config.json if
// present, and model.safetensors or the shards that model.safetensors.index.json names. Errors name
// the file and the problem, or the unsupported feature. No content of the directory makes Load
// panic, or allocate more than a few times the directory's size.
func Load(fsys fs.FS) (*Weights, error) {
	w, err := load(fsys)
	if err != nil {
		return nil, fmt.Errorf("load model: %w", err)
	}
	return w, nil
}

func load(fsys fs.FS) (*Weights, error) {
	c, err := readConfig(fsys)
	if err != nil {
		return nil, err
	}
	w := &Weights{config: c, layers: make([]layer, c.layers)}
	if w.eos, err = readEOS(fsys, c); err != nil {
		return nil, err
	}
	shards, err := safetensors.FindShards(fsys)
	if err != nil {
		return nil, err
	}
	p := w.plan()
	if err := p.check(fsys, shards); err != nil {
		return nil, err
	}
	p.allocate()
	if err := p.read(fsys, shards); err != nil {
		return nil, err
	}
	if c.tied {
		w.head.w = w.embedding
	}
	return w, nil
}

// plan lists the tensors that the model consists of.
func (w *Weights) plan() *plan {
	c, p := w.config, newPlan()
	q, kv := c.queryDim(), c.kvDim()
	p.add(&w.embedding, "model.embed_tokens.weight", c.vocab, c.hidden)
	for i := range w.layers {
		l, at := &w.layers[i], fmt.Sprintf("model.layers.%d.", i)
		p.add(&l.attentionNorm, at+"input_layernorm.weight", c.hidden)
		if c.fused {
			p.linear(&l.qkv, c.inputBias, at+"self_attn.qkv_proj", q+2*kv, c.hidden)
		} else {
			p.linear(&l.qkv, c.inputBias, at+"self_attn.q_proj", q, c.hidden)
			p.linear(&l.qkv, c.inputBias, at+"self_attn.k_proj", kv, c.hidden)
			p.linear(&l.qkv, c.inputBias, at+"self_attn.v_proj", kv, c.hidden)
		}
		if c.headNorm {
			p.add(&l.queryNorm, at+"self_attn.q_norm.weight", c.headDim)
			p.add(&l.keyNorm, at+"self_attn.k_norm.weight", c.headDim)
		}
		p.linear(&l.output, c.outputBias, at+"self_attn.o_proj", c.hidden, q)
		p.add(&l.mlpNorm, at+"post_attention_layernorm.weight", c.hidden)
		if c.fused {
			p.linear(&l.gateUp, c.mlpBias, at+"mlp.gate_up_proj", 2*c.feedForward, c.hidden)
		} else {
			p.linear(&l.gateUp, c.mlpBias, at+"mlp.gate_proj", c.feedForward, c.hidden)
			p.linear(&l.gateUp, c.mlpBias, at+"mlp.up_proj", c.feedForward, c.hidden)
		}
		p.linear(&l.down, c.mlpBias, at+"mlp.down_proj", c.hidden, c.feedForward)
	}
	p.add(&w.norm, "model.norm.weight", c.hidden)
	if c.tied {
		w.head.in, w.head.out = c.hidden, c.vocab
	} else {
		p.linear(&w.head, false, "lm_head", c.vocab, c.hidden)
	}
	return p
}

// A plan assigns a destination to each tensor. Several tensors may go into one slice, one after
// another.
type plan struct {
	parts map[string]part
	sizes map[*[]float32]int
}

type part struct {
	shape  []int
	into   *[]float32
	offset int
	length int
}

func newPlan() *plan { return &plan{parts: map[string]part{}, sizes: map[*[]float32]int{}} }

func (p *plan) add(into *[]float32, name string, shape ...int) {
	length := 1
	for _, n := range shape {
		length *= n
	}
	p.parts[name] = part{shape, into, p.sizes[into], length}
	p.sizes[into] += length
}

// linear adds rows to a matrix.
func (p *plan) linear(l *linear, bias bool, name string, out, in int) {
	l.in, l.out = in, l.out+out
	p.add(&l.w, name+".weight", out, in)
	if bias {
		p.add(&l.b, name+".bias", out)
	}
}

// check returns an error if the shards lack a planned tensor, before anything large is allocated.
func (p *plan) check(fsys fs.FS, shards []safetensors.Shard) error {
	missing := make(map[string]bool, len(p.parts))
	for name := range p.parts {
		missing[name] = true
	}
	err := p.each(fsys, shards, func(t safetensors.Tensor, part part, _ io.Reader) error {
		delete(missing, t.Name)
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

func (p *plan) allocate() {
	for into, size := range p.sizes {
		*into = make([]float32, size)
	}
}

// read fills the slices that allocate has made.
func (p *plan) read(fsys fs.FS, shards []safetensors.Shard) error {
	return p.each(fsys, shards, func(t safetensors.Tensor, part part, r io.Reader) error {
		return t.ReadFloats(r, (*part.into)[part.offset:part.offset+part.length])
	})
}

// each calls visit for every planned tensor in the shards; visit may read its data from r. Other
// tensors, such as the buffers that some exporters write, are skipped.
func (p *plan) each(fsys fs.FS, shards []safetensors.Shard, visit func(t safetensors.Tensor, part part, r io.Reader) error) error {
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
