package tinyllama

import (
	"encoding/binary"
	"encoding/json"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

func TestLoadRefusesUnsupportedModels(t *testing.T) {
	for want, change := range map[string]map[string]any{
		`architecture ["MixtralForCausalLM"] is not supported`: {"architectures": []string{"MixtralForCausalLM"}},
		`model_type "llama" is not supported for Qwen2`:        {"architectures": []string{"Qwen2ForCausalLM"}},
		`num_key_value_heads is missing`:                       family("Mistral", map[string]any{"num_key_value_heads": nil}),
		`sliding_window must be a positive number`:             family("Phi3", map[string]any{"sliding_window": 0}),
		`architecture [] is not supported`:                     {"architectures": nil},
		`model_type "mistral" is not supported`:                {"model_type": "mistral"},
		`hidden_act "gelu" is not supported`:                   {"hidden_act": "gelu"},
		`quantization_config is not supported`:                 {"quantization_config": map[string]any{"bits": 4}},
		`partial_rotary_factor 0.5 is not supported`:           {"partial_rotary_factor": 0.5},
		`rope_scaling of type "yarn" is not supported`:         {"rope_scaling": map[string]any{"rope_type": "yarn", "factor": 2}},
		`rope_scaling of type "dynamic" is not supported`:      {"rope_parameters": map[string]any{"rope_type": "dynamic"}},
		`rope_scaling factor is 0`:                             {"rope_scaling": map[string]any{"type": "linear"}},
		`is not what llama3 needs`:                             {"rope_scaling": map[string]any{"rope_type": "llama3", "factor": 8}},
		`rope_theta is -1`:                                     {"rope_theta": -1},
		`rms_norm_eps is 2`:                                    {"rms_norm_eps": 2},
		`num_hidden_layers is 1000000000; it must be`:          {"num_hidden_layers": 1000000000},
		`hidden_size is 0; it must be`:                         {"hidden_size": nil, "head_dim": 6},
		`head_dim is -2; it must be`:                           {"head_dim": -2},
		`head_dim is 5; it must be even`:                       {"head_dim": 5},
		`is not a multiple of num_key_value_heads (3)`:         {"num_key_value_heads": 3},
		`num_key_value_heads is 0; it must be`:                 {"num_key_value_heads": 0},
		`num_attention_heads is 0; it must be`:                 {"num_attention_heads": nil},
		`eos_token_id 50 is not below vocab_size`:              {"eos_token_id": []int{3, 50}},
		`cannot unmarshal string`:                              {"vocab_size": "many"},
		`cannot unmarshal number -1`:                           {"eos_token_id": -1},
	} {
		m := newRandomModel(1, nil)
		maps.Copy(m.config, change)
		maps.DeleteFunc(m.config, func(_ string, v any) bool { return v == nil })
		if w, err := Load(m.files(), LoadOptions{}); w != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", change, err, want)
		}
	}
}

// A context that is not longer than the window needs no window.
func TestSlidingWindowLimitsTheContext(t *testing.T) {
	for _, c := range []struct {
		change map[string]any
		want   int
	}{
		{family("Mistral", map[string]any{"sliding_window": 100}), 100},
		{family("Mistral", map[string]any{"sliding_window": nil}), 300},
		{family("Mistral", map[string]any{"max_position_embeddings": 10000}), 4096},
		{family("Qwen2", map[string]any{"sliding_window": 100}), 300},
		{family("Qwen2", map[string]any{"sliding_window": 100, "use_sliding_window": true}), 100},
		{family("Phi3", map[string]any{"sliding_window": 100}), 100},
		{map[string]any{"sliding_window": 100}, 300}, // a Llama has none
	} {
		if got := New(newRandomModel(1, c.change).load(t), Options{}).ContextLength(); got != c.want {
			t.Errorf("%v: the context is %d, want %d", c.change, got, c.want)
		}
	}
}

func TestLoadNamesTheTensorAtFault(t *testing.T) {
	const down = "model.layers.1.mlp.down_proj.weight"
	for want, damage := range map[string]func(m *randomModel){
		`missing tensors: ` + down: func(m *randomModel) { delete(m.tensors, down) },
		`missing tensors: lm_head.weight, model.embed_tokens.weight, model.layers.0.input_layernorm.weight and 27 more`: func(m *randomModel) { clear(m.tensors) },
		`model.safetensors: tensor "` + down + `" has shape [36 24], not [24 36]`: func(m *randomModel) {
			m.tensors[down] = tensor{[]int{36, 24}, m.tensors[down].values}
		},
		`has shape [24 36 1], not [24 36]`: func(m *randomModel) { m.tensors[down] = tensor{[]int{24, 36, 1}, m.tensors[down].values} },
		`missing tensors: model.layers.0.self_attn.k_proj.bias, model.layers.0.self_attn.o_proj.bias`: func(m *randomModel) {
			m.config["attention_bias"] = true
		},
	} {
		m := newRandomModel(1, nil)
		damage(m)
		if w, err := Load(m.files(), LoadOptions{}); w != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestLoadRefusesDamagedFiles(t *testing.T) {
	for name, c := range map[string]struct {
		shards int
		damage func(files fstest.MapFS)
		want   string
	}{
		"no config":         {0, func(f fstest.MapFS) { delete(f, "config.json") }, "config.json: file does not exist"},
		"config cut":        {0, func(f fstest.MapFS) { f["config.json"].Data = []byte(`{"vocab`) }, "parse config.json"},
		"no weights":        {0, func(f fstest.MapFS) { delete(f, "model.safetensors") }, "neither model.safetensors nor model.safetensors.index.json"},
		"weights cut":       {0, func(f fstest.MapFS) { cut(f["model.safetensors"], 100) }, "model.safetensors: the tensors end at byte"},
		"empty weights":     {0, func(f fstest.MapFS) { f["model.safetensors"].Data = nil }, "unexpected EOF"},
		"weights too long":  {0, func(f fstest.MapFS) { f["model.safetensors"].Data = append(f["model.safetensors"].Data, 0) }, "the tensors end at byte"},
		"generation config": {0, func(f fstest.MapFS) { f["generation_config.json"] = &fstest.MapFile{Data: []byte("[")} }, "parse generation_config.json"},
		"generation config 2": {0, func(f fstest.MapFS) {
			f["generation_config.json"] = &fstest.MapFile{Data: []byte(`{"eos_token_id":"x"}`)}
		}, "parse generation_config.json"},
		"wrong dtype": {0, func(f fstest.MapFS) {
			f["model.safetensors"].Data = []byte(strings.ReplaceAll(string(f["model.safetensors"].Data), `"F32"`, `"I32"`))
		}, `has dtype "I32"; F32, BF16 and F16 are supported`},
		"dtype of another size": {0, func(f fstest.MapFS) {
			f["model.safetensors"].Data = []byte(strings.ReplaceAll(string(f["model.safetensors"].Data), `"F32"`, `"F16"`))
		}, "but its shape"},
		"header length": {0, func(f fstest.MapFS) {
			binary.LittleEndian.PutUint64(f["model.safetensors"].Data, 1<<63)
		}, "the header claims 9223372036854775808 bytes"},
		"shard missing": {2, func(f fstest.MapFS) { delete(f, "model-00002-of-00002.safetensors") }, "model-00002-of-00002.safetensors: file does not exist"},
		"shard cut":     {2, func(f fstest.MapFS) { cut(f["model-00002-of-00002.safetensors"], 1) }, "model-00002-of-00002.safetensors: the tensors end"},
		"index cut":     {2, func(f fstest.MapFS) { cut(f["model.safetensors.index.json"], 1) }, "parse model.safetensors.index.json"},
		"index empty":   {2, func(f fstest.MapFS) { f["model.safetensors.index.json"].Data = []byte("{}") }, "missing tensors"},
		"index elsewhere": {2, func(f fstest.MapFS) {
			f["model.safetensors.index.json"].Data = []byte(`{"weight_map":{"lm_head.weight":"../../etc/passwd"}}`)
		}, `names the file "../../etc/passwd"`},
		"tensor in another shard than indexed": {2, func(f fstest.MapFS) {
			f["model.safetensors.index.json"].Data = []byte(strings.ReplaceAll(string(f["model.safetensors.index.json"].Data),
				`"lm_head.weight":"model-00001`, `"lm_head.weight":"model-00002`))
		}, "missing tensors: lm_head.weight"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newRandomModel(1, nil)
			m.shards = c.shards
			files := m.files()
			c.damage(files)
			if w, err := Load(files, LoadOptions{}); w != nil || err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

func cut(f *fstest.MapFile, n int) { f.Data = f.Data[:len(f.Data)-n] }

// A sizeLiar reports a size that is too large, and cannot seek.
type sizeLiar struct{ fstest.MapFS }

type lyingFile struct {
	fs.File
	fs.FileInfo
}

func (l sizeLiar) Open(name string) (fs.File, error) {
	f, err := l.MapFS.Open(name)
	if err != nil || name != "model.safetensors" {
		return f, err
	}
	info, err := f.Stat()
	return struct{ fs.File }{lyingFile{f, info}}, err
}
func (f lyingFile) Stat() (fs.FileInfo, error) { return f, nil }
func (f lyingFile) Size() int64                { return f.FileInfo.Size() + 50 }

func TestLoadDetectsTruncatedFiles(t *testing.T) {
	files := newRandomModel(1, nil).files()
	b := files["model.safetensors"].Data
	cut(files["model.safetensors"], 50)
	if _, err := Load(sizeLiar{files}, LoadOptions{}); err == nil || !strings.Contains(err.Error(), "unexpected EOF") {
		t.Errorf("%v", err)
	}
	files["model.safetensors"].Data = b[:40]
	if _, err := Load(sizeLiar{files}, LoadOptions{}); err == nil {
		t.Error("a header cut short was accepted")
	}
}

func TestEndOfSequenceTokens(t *testing.T) {
	for _, c := range []struct {
		config, generation string
		want               []uint32
	}{
		{`7`, ``, []uint32{7}},
		{`[9,7,9]`, ``, []uint32{7, 9}},
		{`null`, ``, nil},
		{`7`, `{}`, []uint32{7}},
		{`7`, `{"eos_token_id":null}`, []uint32{7}},
		{`7`, `{"eos_token_id":8}`, []uint32{8}},
		{`7`, `{"eos_token_id":[8,3]}`, []uint32{3, 8}},
	} {
		files := newRandomModel(1, map[string]any{"eos_token_id": json.RawMessage(c.config)}).files()
		if c.generation != "" {
			files["generation_config.json"] = &fstest.MapFile{Data: []byte(c.generation)}
		}
		w, err := Load(files, LoadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got := New(w, Options{}).EOS(); !slices.Equal(got, c.want) {
			t.Errorf("config %s, generation_config %s: %v, want %v", c.config, c.generation, got, c.want)
		}
	}
}

func TestLoadSkipsUnusedTensors(t *testing.T) {
	m := newRandomModel(1, nil)
	m.tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = tensor{[]int{3}, make([]float32, 3)}
	if _, err := Load(m.files(), LoadOptions{}); err != nil {
		t.Error(err)
	}
	// This must also work if the file cannot seek.
	if _, err := Load(noSeek{m.files()}, LoadOptions{}); err != nil {
		t.Error(err)
	}
}

type noSeek struct{ fs.FS }

func (n noSeek) Open(name string) (fs.File, error) {
	f, err := n.FS.Open(name)
	return struct{ fs.File }{f}, err
}

func TestProgressReachesTheEnd(t *testing.T) {
	m := newRandomModel(1, map[string]any{"vocab_size": 6000}) // several rounds of rows
	m.shards = 2
	var last, all int64
	calls := 0
	if _, err := Load(m.files(), LoadOptions{Progress: func(done, total int64) {
		if done <= last || done > total || all != 0 && total != all {
			t.Errorf("%d of %d bytes after %d of %d", done, total, last, all)
		}
		last, all = done, total
		calls++
	}}); err != nil {
		t.Fatal(err)
	}
	size := int64(0)
	for _, tensor := range m.tensors {
		size += int64(4 * len(tensor.values))
	}
	if all != size || last < all-int64(4*24) || calls < 10 { // norms come without a call
		t.Errorf("%d calls; the last was %d of %d, want %d", calls, last, all, size)
	}
}

func TestUnknownFormatsAreRefused(t *testing.T) {
	if w, err := Load(newRandomModel(1, nil).files(), LoadOptions{Format: "int4"}); w != nil || err == nil || !strings.Contains(err.Error(), "stored, f32, bf16, int8") {
		t.Errorf("%v, %v", w, err)
	}
}

func FuzzConfig(f *testing.F) {
	for _, config := range []string{
		`{"architectures":["LlamaForCausalLM"],"hidden_size":8,"intermediate_size":8,"num_hidden_layers":1,"num_attention_heads":2,"vocab_size":9}`,
		`{"architectures":["LlamaForCausalLM"],"hidden_size":1e9,"rope_scaling":{"type":"llama3"},"eos_token_id":[1,2]}`,
		`{"architectures":["LlamaForCausalLM"],"num_attention_heads":-1,"num_key_value_heads":0,"head_dim":1}`,
	} {
		f.Add([]byte(config), []byte(`{"weight_map":{"lm_head.weight":"a"}}`))
	}
	f.Fuzz(func(t *testing.T, config, index []byte) {
		_, err := Load(fstest.MapFS{
			"config.json": {Data: config}, "generation_config.json": {Data: config}, "model.safetensors.index.json": {Data: index}, "a": {Data: config},
		}, LoadOptions{})
		if err == nil {
			t.Fatal("loaded a model without weights")
		}
	})
}
