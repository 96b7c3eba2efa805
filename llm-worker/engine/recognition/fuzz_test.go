package recognition

import (
	"bytes"
	"io"
	"net/http"
	"testing"
	"unicode/utf8"
)

// A pages is a server that answers each path with the next part of a text.
type pages struct {
	name  string // of the header Server
	parts [][]byte
}

// RoundTrip implements http.RoundTripper.
func (p *pages) RoundTrip(*http.Request) (*http.Response, error) {
	body := []byte(nil)
	if len(p.parts) > 0 {
		body, p.parts = p.parts[0], p.parts[1:]
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Server": {p.name}}, Body: io.NopCloser(bytes.NewReader(body))}, nil
}

// FuzzServer reads arbitrary answers of a server: recognition returns a bounded description or an error.
func FuzzServer(f *testing.F) {
	f.Add("uvicorn", []byte(`{"data":[{"id":"a/b","owned_by":"vllm","root":"/models/b","max_model_len":1024}]}`+"\x00"+`{"version":"0.32.0"}`+"\x00"+
		`vllm:cache_config_info{block_size="16",kv_cache_size_tokens="838848"} 1`+"\n"+`vllm:num_requests_running{engine="1"} 0`+"\n"))
	f.Add("llama.cpp", []byte(`{"data":[{"id":"x.gguf","meta":{"n_ctx_train":8}}]}`+"\x00"+`{"model_path":"/m/x.gguf","total_slots":4,"default_generation_settings":{"n_ctx":8}}`))
	f.Add("uvicorn", []byte(`{"data":[{"id":"a","owned_by":"sglang"}]}`+"\x00"+`{"version":"0.5","dp_size":2,"lora_paths":{"a":"b"}}`))
	f.Add("", []byte(`{"data":[]}`+"\x00"+`{"version":"0.33.0"}`))
	f.Fuzz(func(t *testing.T, name string, text []byte) {
		c := newClient("")
		c.http.Transport = &pages{name, bytes.Split(text, []byte{0})}
		s, err := c.recognize(t.Context(), "http://server", "")
		if err != nil {
			return
		}
		for _, told := range append([]string{s.Model, s.Root, s.Version, s.Limits.Reasoning}, s.Limits.Adapters...) {
			if utf8.RuneCountInString(told) > maxText {
				t.Errorf("a text of %d bytes", len(told))
			}
		}
		if len(s.Models) > maxModels || len(s.Limits.Adapters) > maxModels || s.String() == "" {
			t.Errorf("%d models, %d adapters, %q", len(s.Models), len(s.Limits.Adapters), s)
		}
		_ = s.Limits.String()
	})
}
