package tinyllama

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/whence-dev/whence/llm-worker/engine/tinyllama/matrix"
)

// Weights hold the weights of a model and its config. They are immutable, and Models may share them.
type Weights struct {
	config *modelConfig
	eos    []uint32

	embedding *matrix.Matrix // vocab × hidden
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

// LoadOptions say how Load reads weights. The zero value works.
type LoadOptions struct {
	// Format is the format of matrices in memory, one of Formats. "" means Stored.
	Format string
	// Progress, if it is not nil, is called as weights arrive, with their bytes so far and in all.
	Progress func(done, total int64)
}

// Stored keeps the matrices of a checkpoint as they are stored: BF16 as bf16, and all others as f32.
const Stored = "stored"

// Formats are the formats of matrices in memory. Vectors are always float32.
var Formats = []string{Stored, matrix.F32.String(), matrix.BF16.String(), matrix.Int8.String()}

// Load reads a Hugging Face directory of a supported architecture: config.json, generation_config.json if
// present, and model.safetensors or the shards that model.safetensors.index.json names. Errors name
// the file and the problem, or the unsupported feature. No content of the directory makes Load
// panic, or allocate more than a few times the directory's size.
func Load(fsys fs.FS, opts LoadOptions) (*Weights, error) {
	w, err := load(fsys, opts)
	if err != nil {
		return nil, fmt.Errorf("load model: %w", err)
	}
	return w, nil
}

func load(fsys fs.FS, opts LoadOptions) (*Weights, error) {
	if opts.Format != "" && !slices.Contains(Formats, opts.Format) {
		return nil, fmt.Errorf("weights cannot be kept as %q, only as %s", opts.Format, strings.Join(Formats, ", "))
	}
	c, err := readConfig(fsys)
	if err != nil {
		return nil, err
	}
	w := &Weights{config: c, layers: make([]layer, c.Layers)}
	if w.eos, err = readEOS(fsys, c); err != nil {
		return nil, err
	}
	if err := w.plan().Load(fsys, opts.Format, opts.Progress); err != nil {
		return nil, err
	}
	if c.Tied {
		w.head.w = w.embedding
	}
	return w, nil
}

// plan lists the tensors that the model consists of.
func (w *Weights) plan() *loadPlan {
	c, p := w.config, newLoadPlan()
	q, kv := c.QueryDim(), c.KVDim()
	p.Matrix(&w.embedding, "model.embed_tokens.weight", c.Vocab, c.Hidden)
	for i := range w.layers {
		l, at := &w.layers[i], fmt.Sprintf("model.layers.%d.", i)
		p.Vector(&l.attentionNorm, at+"input_layernorm.weight", c.Hidden)
		if c.Fused {
			planLinear(p, &l.qkv, c.InputBias, at+"self_attn.qkv_proj", q+2*kv, c.Hidden)
		} else {
			planLinear(p, &l.qkv, c.InputBias, at+"self_attn.q_proj", q, c.Hidden)
			planLinear(p, &l.qkv, c.InputBias, at+"self_attn.k_proj", kv, c.Hidden)
			planLinear(p, &l.qkv, c.InputBias, at+"self_attn.v_proj", kv, c.Hidden)
		}
		if c.HeadNorm {
			p.Vector(&l.queryNorm, at+"self_attn.q_norm.weight", c.HeadDim)
			p.Vector(&l.keyNorm, at+"self_attn.k_norm.weight", c.HeadDim)
		}
		planLinear(p, &l.output, c.OutputBias, at+"self_attn.o_proj", c.Hidden, q)
		p.Vector(&l.mlpNorm, at+"post_attention_layernorm.weight", c.Hidden)
		if c.Fused {
			planLinear(p, &l.gateUp, c.MLPBias, at+"mlp.gate_up_proj", 2*c.FeedForward, c.Hidden)
		} else {
			planLinear(p, &l.gateUp, c.MLPBias, at+"mlp.gate_proj", c.FeedForward, c.Hidden)
			planLinear(p, &l.gateUp, c.MLPBias, at+"mlp.up_proj", c.FeedForward, c.Hidden)
		}
		planLinear(p, &l.down, c.MLPBias, at+"mlp.down_proj", c.Hidden, c.FeedForward)
	}
	p.Vector(&w.norm, "model.norm.weight", c.Hidden)
	if !c.Tied {
		planLinear(p, &w.head, false, "lm_head", c.Vocab, c.Hidden)
	}
	return p
}

// planLinear plans rows of a matrix, and of its bias.
func planLinear(p *loadPlan, l *linear, bias bool, name string, out, in int) {
	p.Matrix(&l.w, name+".weight", out, in)
	if bias {
		p.Vector(&l.b, name+".bias", out)
	}
}
