package beside_test

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/whence-dev/whence/llm-worker/engine/beside"
)

// TestConfigMayNameNoContext: the configurations of some architectures name no limit, and the server
// reports the length of its contexts.
func TestConfigMayNameNoContext(t *testing.T) {
	for text, test := range map[string]struct {
		server, want int
		says         string
	}{
		`{"vocab_size":9}`: {server: 512, want: 512},
		`{"vocab_size":9,"max_position_embeddings":64}`:                                {server: 512, want: 64},
		`{"vocab_size":9,"text_config":{"max_position_embeddings":64}}`:                {want: 64},
		`{"vocab_size":9,"max_position_embeddings":null}`:                              {says: "context length"},
		`{"vocab_size":9,"max_position_embeddings":-1,"text_config":{"vocab_size":9}}`: {server: 512, says: "max_position_embeddings is -1"},
	} {
		config, err := beside.LoadConfig(fstest.MapFS{"config.json": {Data: []byte(text)}})
		var up *beside.Upstream
		if err == nil {
			model := beside.Model{Name: "m", Context: test.server, Generation: true}
			up, err = model.Upstream(config)
		}
		if test.says != "" {
			if err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%s: %v", text, err)
			}
			continue
		}
		if err != nil || up.Context != test.want {
			t.Errorf("%s: %+v, %v", text, up, err)
		}
	}
}
