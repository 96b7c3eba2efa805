package recognition

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"

	"github.com/whence-dev/whence/llm-worker/engine/beside"
	"github.com/whence-dev/whence/llm-worker/engine/beside/overhttp"
)

// A listing is the answer to GET /v1/models, with the members of all makes.
type listing struct {
	Data []listedModel `json:"data"`
}

type listedModel struct {
	ID      string          `json:"id"`
	OwnedBy string          `json:"owned_by"`
	Root    string          `json:"root"`           // of vLLM and SGLang
	Parent  *string         `json:"parent"`         // of an adapter
	Context int             `json:"max_model_len"`  // of vLLM and SGLang
	Workers json.RawMessage `json:"workers"`        // of another Whence
	Length  int             `json:"context_length"` // of another Whence
	Answers *bool           `json:"generates"`      // of another Whence
	Meta    struct {
		Context int `json:"n_ctx_train"`
	} `json:"meta"` // of llama.cpp
}

// recognize asks the server at a URL.
func (c *client) recognize(ctx context.Context, url, model string) (*Server, error) {
	base := strings.TrimSuffix(url, "/v1")
	r, err := c.get(ctx, base, "/v1/models", maxBody)
	if err != nil {
		return nil, err
	}
	s := &Server{Address: base}
	if r.status == http.StatusOK {
		var list listing
		if json.Unmarshal(r.body, &list) != nil {
			return nil, notAServer(r)
		}
		s.list(list, model)
	}
	switch {
	case r.status == http.StatusUnauthorized || r.status == http.StatusForbidden:
		return nil, fmt.Errorf("the server that generates answers with status %d: it asks for a key, or refuses this one; --upstream-key sets it", r.status)
	case r.status == http.StatusServiceUnavailable || r.status == http.StatusBadGateway || r.status == http.StatusGatewayTimeout:
		return nil, notReady(r)
	case r.header.Get("Server") == "llama.cpp" || s.Make == LlamaCPP:
		return c.llamaCPP(ctx, s)
	case s.Make == VLLM:
		return c.vllm(ctx, s)
	case s.Make == SGLang:
		return c.sglang(ctx, s)
	case s.Make == Whence:
		s.Version = c.version(ctx, base, "/version")
		return s, nil
	}
	return c.other(ctx, s, model, r)
}

// other recognises a server by what only its make has, at the paths of other APIs.
func (c *client) other(ctx context.Context, s *Server, model string, models *reply) (*Server, error) {
	if s.Version = c.version(ctx, s.Address, "/api/version"); s.Version != "" {
		s.Make = Ollama
		s.Pools = s.Model != "" && c.ollamaEmbeds(ctx, s)
		return s, nil
	}
	var info huggingFaceInfo
	if c.read(ctx, s.Address, "/info", &info) && info.describe(s) {
		return s, nil
	}
	if models.status != http.StatusOK {
		return nil, notAServer(models)
	}
	var list studioList
	s.Make = Unknown
	if c.read(ctx, s.Address, "/api/v0/models", &list) && len(list.Data) > 0 && list.Data[0].State != "" {
		s.Make = LMStudio
		list.choose(s, model)
	}
	return s, nil
}

// A huggingFaceInfo is the answer to GET /info of TGI and of text-embeddings-inference.
type huggingFaceInfo struct {
	Model   string          `json:"model_id"`
	Version string          `json:"version"`
	Context int             `json:"max_total_tokens"` // of TGI
	Running int             `json:"max_concurrent_requests"`
	Kind    json.RawMessage `json:"model_type"`       // of text-embeddings-inference
	Length  int             `json:"max_input_length"` // of text-embeddings-inference
}

// describe completes the description of a server, and reports false if it is another.
func (i *huggingFaceInfo) describe(s *Server) bool {
	switch {
	case i.Model == "":
		return false
	case i.Context > 0:
		s.Make, s.Limits.Context = TGI, i.Context
	case i.Kind != nil && i.Length > 0:
		s.Make, s.Limits.Context, s.Pools = TEI, i.Length, true
	default:
		return false
	}
	s.Version, s.Root, s.Limits.Running = clip(i.Version), clip(i.Model), i.Running
	s.Model = cmp.Or(s.Model, s.Root)
	return true
}

// ollamaEmbeds reports whether the model of an Ollama embeds, and does not generate.
func (c *client) ollamaEmbeds(ctx context.Context, s *Server) bool {
	var shown struct {
		Capabilities []string `json:"capabilities"`
	}
	body, err := json.Marshal(map[string]string{"model": s.Model})
	if err != nil {
		return false
	}
	r, err := c.post(ctx, s.Address, "/api/show", body)
	return err == nil && r.status == http.StatusOK && json.Unmarshal(r.body, &shown) == nil &&
		slices.Contains(shown.Capabilities, "embedding") && !slices.Contains(shown.Capabilities, "completion")
}

// A studioList is the list of models of LM Studio.
type studioList struct {
	Data []struct {
		ID      string `json:"id"`
		State   string `json:"state"`
		Context int    `json:"max_context_length"`
		Loaded  int    `json:"loaded_context_length"`
	} `json:"data"`
}

// choose takes the model of a name, or without a name the first that is loaded, or that may be.
func (l *studioList) choose(s *Server, model string) {
	loaded := false
	for _, m := range l.Data {
		if m.ID == s.Model || model == "" && !loaded && m.State == "loaded" {
			s.Model, s.Limits.Context = clip(m.ID), cmp.Or(m.Loaded, m.Context)
			loaded = loaded || m.State == "loaded"
		}
	}
}

// notAServer says that an answer is not that of a model server.
func notAServer(r *reply) error {
	switch {
	case strings.Contains(r.header.Get("Content-Type"), "html"):
		return errors.New("a web page answers at the address, and not the API of a model server: is it the right port?")
	case r.status == http.StatusOK:
		return errors.New("the answer to /v1/models is not a list of models: is it the port of a model server?")
	default:
		return fmt.Errorf("the server has no list of models: /v1/models answers with status %d: is it the port of a model server?", r.status)
	}
}

// notReady describes the answer of a server that does not serve yet, in its own words if there are any.
func notReady(r *reply) error {
	said := http.StatusText(r.status)
	if json.Valid(r.body) {
		said = cmp.Or(clip(overhttp.ReadComplaint(r.body).Message), said)
	}
	return fmt.Errorf("the server that generates is not ready: status %d: %s", r.status, said)
}

// list takes what the list of models tells.
func (s *Server) list(list listing, model string) {
	for _, m := range list.Data[:min(len(list.Data), maxModels)] {
		name := clip(m.ID)
		if m.Parent != nil && *m.Parent != "" {
			s.Limits.Adapters = append(s.Limits.Adapters, name)
			continue
		}
		s.Models = append(s.Models, name)
		if s.Model != "" && m.ID != model || name == "" {
			continue
		}
		s.Model, s.Root = name, clip(m.Root)
		s.Limits.Context = cmp.Or(m.Context, m.Length, m.Meta.Context)
		switch owners := map[string]Make{"vllm": VLLM, "sglang": SGLang, "llamacpp": LlamaCPP}; {
		case len(m.Workers) > 0:
			s.Make, s.Pools = Whence, m.Answers != nil && !*m.Answers
		default:
			s.Make = owners[m.OwnedBy]
		}
	}
	if model != "" { // the server may know it by a name that it does not list
		s.Model = model
	}
}

// version returns the member version of the object at a path, or "".
func (c *client) version(ctx context.Context, base, path string) string {
	var v struct {
		Version string `json:"version"`
	}
	c.read(ctx, base, path, &v)
	return clip(v.Version)
}

// vllm asks what a vLLM tells. Its metrics have the KV cache and the ranks. A vLLM whose model does not
// generate lacks the routes for that.
func (c *client) vllm(ctx context.Context, s *Server) (*Server, error) {
	s.Version = c.version(ctx, s.Address, "/version")
	s.Pools = c.has(ctx, s.Address, "/pooling") && !c.has(ctx, s.Address, "/v1/completions")
	r, err := c.get(ctx, s.Address, "/metrics", maxMetrics)
	if s.Limits.Metrics = err == nil && r.status == http.StatusOK; !s.Limits.Metrics {
		return s, nil // a server without metrics is used all the same
	}
	families, err := overhttp.ReadMetrics(bytes.NewReader(r.body))
	if err != nil {
		return s, nil //nolint:nilerr // as above
	}
	names, ranks := &overhttp.VLLMMetrics, map[string]bool{}
	for _, m := range families[names.CacheConfig].GetMetric() {
		s.Limits.KVBlock = max(s.Limits.KVBlock, int(overhttp.Number(m, "block_size")))
		s.Limits.KVTokens = max(s.Limits.KVTokens, int(overhttp.Number(m, "kv_cache_size_tokens")))
	}
	for _, m := range families[names.Running].GetMetric() {
		ranks[overhttp.Label(m, names.Rank)] = true
	}
	if len(ranks) > 1 {
		s.Limits.Ranks = len(ranks)
	}
	return s, nil
}

// sglang asks what an SGLang tells. Older versions have the same object at another path.
func (c *client) sglang(ctx context.Context, s *Server) (*Server, error) {
	var info struct {
		Version   string           `json:"version"`
		Path      string           `json:"model_path"`
		Running   int              `json:"max_running_requests"`
		Ranks     int              `json:"dp_size"`
		Page      int              `json:"page_size"`
		KVTokens  int              `json:"max_total_num_tokens"`
		Metrics   bool             `json:"enable_metrics"`
		Reasoning string           `json:"reasoning_parser"`
		Adapters  beside.LoRAPaths `json:"lora_paths"`
	}
	if !c.read(ctx, s.Address, "/server_info", &info) && !c.read(ctx, s.Address, "/get_server_info", &info) {
		return s, nil
	}
	s.Version, s.Root = clip(info.Version), cmp.Or(clip(info.Path), s.Root)
	var model struct {
		Generates *bool `json:"is_generation"`
	}
	_ = c.read(ctx, s.Address, "/model_info", &model) || c.read(ctx, s.Address, "/get_model_info", &model)
	s.Pools = model.Generates != nil && !*model.Generates
	l := &s.Limits
	l.Running, l.KVBlock, l.KVTokens, l.Metrics, l.Reasoning = info.Running, info.Page, info.KVTokens, info.Metrics, clip(info.Reasoning)
	if info.Ranks > 1 {
		l.Ranks = info.Ranks
	}
	for _, name := range info.Adapters[:min(len(info.Adapters), maxModels)] {
		if name = clip(name); !slices.Contains(l.Adapters, name) {
			l.Adapters = append(l.Adapters, name)
		}
	}
	return s, nil
}

// llamaCPP asks what llama.cpp's server tells. It answers /props only when its model is loaded.
func (c *client) llamaCPP(ctx context.Context, s *Server) (*Server, error) {
	var props struct {
		Alias   string `json:"model_alias"`
		Path    string `json:"model_path"`
		Slots   int    `json:"total_slots"`
		Build   string `json:"build_info"`
		Default struct {
			Context int `json:"n_ctx"`
		} `json:"default_generation_settings"`
	}
	s.Make = LlamaCPP
	r, err := c.get(ctx, s.Address, "/props", maxBody)
	switch {
	case err != nil:
		return nil, err
	case r.status != http.StatusOK:
		return nil, notReady(r)
	case json.Unmarshal(r.body, &props) != nil:
		return nil, errors.New("llama.cpp's server describes itself (/props) in a form that is not known")
	}
	s.Version, s.Root = clip(props.Build), clip(props.Path)
	name := strings.ReplaceAll(cmp.Or(clip(props.Alias), s.Model, s.Root), `\`, "/")
	s.Model = strings.TrimSuffix(path.Base(name), ".gguf") // without an alias, llama.cpp's name is its file's
	s.Limits.Context, s.Limits.Running = cmp.Or(props.Default.Context, s.Limits.Context), props.Slots
	s.Pools = c.has(ctx, s.Address, "/v1/embeddings") // only with --embeddings or --reranking
	if r, err := c.get(ctx, s.Address, "/metrics", maxMetrics); err == nil && r.status == http.StatusOK {
		s.Limits.Metrics = true
	}
	return s, nil
}
