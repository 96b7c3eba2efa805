package tinyllama

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// An architecture describes how a family of models differs from Llama: in its tensors, and in the
// defaults of config.json. The defaults are those of Hugging Face's transformers.
type architecture struct {
	modelType     string
	attentionBias bool    // attention_bias is an option: q, k, v and o have a bias
	mlpBias       bool    // mlp_bias is an option: gate, up and down have a bias
	inputBias     bool    // q, k and v always have a bias, and o has none
	headNorm      bool    // RMSNorm of each head of q and k, before RoPE
	fused         bool    // one tensor holds q, k and v, and another holds gate and up
	kvHeads       bool    // num_key_value_heads must be given: its default depends on the version of transformers
	headDim       int     // default; 0 means hidden_size / num_attention_heads
	windowed      bool    // sliding_window is an option
	window        int     // default of sliding_window; 0 means no window
	switched      bool    // sliding_window counts only if use_sliding_window is true
	epsilon       float64 // default of rms_norm_eps
}

// architectures has a row for each supported value of "architectures" in config.json.
var architectures = map[string]architecture{
	"LlamaForCausalLM":   {modelType: "llama", attentionBias: true, mlpBias: true, epsilon: 1e-6},
	"MistralForCausalLM": {modelType: "mistral", kvHeads: true, windowed: true, window: 4096, epsilon: 1e-6},
	"Qwen2ForCausalLM":   {modelType: "qwen2", inputBias: true, kvHeads: true, windowed: true, window: 4096, switched: true, epsilon: 1e-6},
	"Qwen3ForCausalLM":   {modelType: "qwen3", attentionBias: true, headNorm: true, kvHeads: true, headDim: 128, windowed: true, window: 4096, switched: true, epsilon: 1e-6},
	"Phi3ForCausalLM":    {modelType: "phi3", fused: true, windowed: true, epsilon: 1e-5},
}

// architecture returns the architecture that config.json names.
func (j *configJSON) architecture() (architecture, error) {
	if len(j.Architectures) == 1 {
		if a, ok := architectures[j.Architectures[0]]; ok {
			if or(j.ModelType, a.modelType) != a.modelType {
				return a, fmt.Errorf("model_type %q is not supported for %s, only %s", *j.ModelType, j.Architectures[0], a.modelType)
			}
			return a, nil
		}
	}
	return architecture{}, fmt.Errorf("architecture %q is not supported, only %s",
		j.Architectures, strings.Join(slices.Sorted(maps.Keys(architectures)), ", "))
}

// window returns the number of latest positions that a token attends to, or 0 if it attends to all.
// A missing sliding_window has the architecture's default, and null means none.
func (j *configJSON) window(a architecture) (n int, err error) {
	if !a.windowed || a.switched && !j.UseWindow || string(j.Window) == "null" {
		return 0, nil
	}
	if j.Window == nil {
		return a.window, nil
	}
	if err := json.Unmarshal(j.Window, &n); err != nil || n < 1 {
		return 0, errors.New("sliding_window must be a positive number or null")
	}
	return n, nil
}
