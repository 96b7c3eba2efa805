package tinyllama

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"

	"github.com/whence-dev/whence/internal/modelfile"
)

// modelConfig is the checked part of config.json that the forward pass needs: the sizes of a model,
// and what sets its architecture apart. readConfig refuses, by name, whatever would silently give
// wrong answers.
type modelConfig struct {
	Hidden      int
	FeedForward int
	Layers      int
	Heads       int
	KVHeads     int
	HeadDim     int
	Vocab       int
	Context     int
	NormEpsilon float32
	Frequencies []float64 // of RoPE: one for each pair of a head
	Tied        bool      // the embedding is the output matrix as well
	InputBias   bool      // q, k and v have a bias
	OutputBias  bool      // o has a bias
	MLPBias     bool      // gate, up and down have a bias
	HeadNorm    bool      // RMSNorm of each head of q and k
	Fused       bool      // one tensor holds q, k and v, and another holds gate and up
	eos         []uint32
}

// QueryDim returns the length of the queries of all heads.
func (c *modelConfig) QueryDim() int { return c.Heads * c.HeadDim }

// KVDim returns the length of the keys of all heads, or of the values.
func (c *modelConfig) KVDim() int { return c.KVHeads * c.HeadDim }

// Layout returns the shape of the keys and values of a position.
func (c *modelConfig) Layout() kvLayout {
	return kvLayout{Layers: c.Layers, Heads: c.KVHeads, Dim: c.HeadDim}
}

// configJSON has pointers for the fields whose Hugging Face default is not the zero value.
type configJSON struct {
	Architectures []string        `json:"architectures"`
	ModelType     *string         `json:"model_type"`
	Hidden        int             `json:"hidden_size"`
	FeedForward   int             `json:"intermediate_size"`
	Layers        int             `json:"num_hidden_layers"`
	Heads         int             `json:"num_attention_heads"`
	KVHeads       *int            `json:"num_key_value_heads"`
	HeadDim       *int            `json:"head_dim"`
	Vocab         int             `json:"vocab_size"`
	Context       *int            `json:"max_position_embeddings"`
	NormEpsilon   *float64        `json:"rms_norm_eps"`
	RopeTheta     *float64        `json:"rope_theta"`
	RopeScaling   *ropeJSON       `json:"rope_scaling"`
	RopeParams    *ropeJSON       `json:"rope_parameters"` // what newer versions write instead of the two above
	PartialRotary *float64        `json:"partial_rotary_factor"`
	HiddenAct     *string         `json:"hidden_act"`
	Tied          bool            `json:"tie_word_embeddings"`
	AttentionBias bool            `json:"attention_bias"`
	MLPBias       bool            `json:"mlp_bias"`
	Quantization  json.RawMessage `json:"quantization_config"`
	EOS           tokenIDs        `json:"eos_token_id"`
	Window        json.RawMessage `json:"sliding_window"`
	UseWindow     bool            `json:"use_sliding_window"`
}

// tokenIDs is an id, a list of ids, or null.
type tokenIDs []uint32

func (ids *tokenIDs) UnmarshalJSON(b []byte) error {
	if bytes.Equal(b, []byte("null")) {
		return nil
	}
	if len(b) > 0 && b[0] == '[' {
		return json.Unmarshal(b, (*[]uint32)(ids))
	}
	*ids = make([]uint32, 1)
	return json.Unmarshal(b, &(*ids)[0])
}

// readConfig reads config.json.
func readConfig(fsys fs.FS) (*modelConfig, error) {
	const name = "config.json"
	b, err := modelfile.Read(fsys, name, modelfile.MaxOther)
	if err != nil {
		return nil, err
	}
	var j configJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return nil, fmt.Errorf("parse %s: %w", name, err)
	}
	c, err := j.check()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return c, nil
}

func (j *configJSON) check() (*modelConfig, error) {
	a, err := j.architecture()
	if err != nil {
		return nil, err
	}
	if err := j.supported(); err != nil {
		return nil, err
	}
	if a.kvHeads && j.KVHeads == nil {
		return nil, errors.New("num_key_value_heads is missing")
	}
	c := &modelConfig{
		Hidden: j.Hidden, FeedForward: j.FeedForward, Layers: j.Layers, Heads: j.Heads, Vocab: j.Vocab,
		KVHeads: or(j.KVHeads, j.Heads), Context: or(j.Context, 2048), NormEpsilon: float32(or(j.NormEpsilon, a.epsilon)),
		Tied: j.Tied, InputBias: a.inputBias || a.attentionBias && j.AttentionBias, OutputBias: a.attentionBias && j.AttentionBias,
		MLPBias: a.mlpBias && j.MLPBias, HeadNorm: a.headNorm, Fused: a.fused, eos: j.EOS,
	}
	switch {
	case j.HeadDim != nil:
		c.HeadDim = *j.HeadDim
	case a.headDim > 0:
		c.HeadDim = a.headDim
	case j.Heads > 0:
		c.HeadDim = j.Hidden / j.Heads
	}
	if err := c.checkShape(); err != nil {
		return nil, err
	}
	window, err := j.window(a)
	if err != nil {
		return nil, err
	}
	if window > 0 { // up to this length, attention within the window is attention to all positions
		c.Context = min(c.Context, window)
	}
	c.Frequencies, err = j.rope(c.HeadDim)
	return c, err
}

// checkShape checks the dimensions.
func (c *modelConfig) checkShape() error {
	// The limits are far above any real model. They prevent overflow of every product of two
	// numbers, and keep allocations small until the weights have been checked.
	for _, d := range []struct {
		field      string
		value, max int
	}{
		{"hidden_size", c.Hidden, 1 << 20},
		{"intermediate_size", c.FeedForward, 1 << 20},
		{"num_hidden_layers", c.Layers, 1 << 10},
		{"num_attention_heads", c.Heads, 1 << 10},
		{"num_key_value_heads", c.KVHeads, 1 << 10},
		{"head_dim", c.HeadDim, 1 << 10},
		{"vocab_size", c.Vocab, 1 << 24},
		{"max_position_embeddings", c.Context, 1 << 24},
	} {
		if d.value < 1 || d.value > d.max {
			return fmt.Errorf("%s is %d; it must be from 1 to %d", d.field, d.value, d.max)
		}
	}
	if c.Heads%c.KVHeads != 0 {
		return fmt.Errorf("num_attention_heads (%d) is not a multiple of num_key_value_heads (%d)", c.Heads, c.KVHeads)
	}
	if c.HeadDim%2 != 0 {
		return fmt.Errorf("head_dim is %d; it must be even", c.HeadDim)
	}
	if !(c.NormEpsilon >= 0 && c.NormEpsilon < 1) {
		return fmt.Errorf("rms_norm_eps is %v", c.NormEpsilon)
	}
	return nil
}

// supported refuses, by name, the options that would silently give wrong answers.
func (j *configJSON) supported() error {
	switch {
	case or(j.HiddenAct, "silu") != "silu":
		return fmt.Errorf("hidden_act %q is not supported, only silu", *j.HiddenAct)
	case or(j.PartialRotary, 1) != 1:
		return fmt.Errorf("partial_rotary_factor %v is not supported, only 1", *j.PartialRotary)
	case len(j.Quantization) > 0 && string(j.Quantization) != "null":
		return errors.New("quantization_config is not supported: the weights must be F32, BF16 or F16")
	}
	return nil
}

// readEOS returns the tokens that end an answer, sorted: those of generation_config.json, otherwise
// those of config.json.
func readEOS(fsys fs.FS, c *modelConfig) ([]uint32, error) {
	const name = "generation_config.json"
	ids := c.eos
	b, err := modelfile.Read(fsys, name, modelfile.MaxOther)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	default:
		var j struct {
			EOS tokenIDs `json:"eos_token_id"`
		}
		if err := json.Unmarshal(b, &j); err != nil {
			return nil, fmt.Errorf("parse %s: %w", name, err)
		}
		if len(j.EOS) > 0 {
			ids = j.EOS
		}
	}
	ids = slices.Compact(slices.Sorted(slices.Values(ids)))
	if len(ids) > 0 && int64(ids[len(ids)-1]) >= int64(c.Vocab) {
		return nil, fmt.Errorf("eos_token_id %d is not below vocab_size, which is %d", ids[len(ids)-1], c.Vocab)
	}
	return ids, nil
}

func or[T any](p *T, otherwise T) T {
	if p != nil {
		return *p
	}
	return otherwise
}

// positive is false for NaN and infinities.
func positive(v float64) bool { return v > 0 && v <= math.MaxFloat64 }

// Multiplications returns the approximate number of multiplications per token.
func (c *modelConfig) Multiplications() int {
	attention := c.Hidden * (2*c.QueryDim() + 2*c.KVDim())
	return c.Layers*(attention+3*c.Hidden*c.FeedForward) + c.Vocab*c.Hidden
}
