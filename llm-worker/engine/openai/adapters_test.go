package openai_test

import (
	"testing"

	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/llm-worker/engine/openai"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// askAdapter sends a request for an adapter, and returns the reason of the refusal, or "" for an answer of the
// adapter. A refused request must not reach the server.
func askAdapter(t *testing.T, f *fake, e *openai.Engine, name string) string {
	t.Helper()
	f.asked.Store(nil)
	req := request(2)
	req.Adapter = name
	r := read(t.Context(), e, req, nil)
	asked := f.asked.Load()
	if r.err == nil {
		if asked == nil || (*asked)["model"] != name && (*asked)["lora_path"] != name {
			t.Errorf("the server was not asked for %s: %v", name, asked)
		}
		return ""
	}
	if asked != nil {
		t.Errorf("%s is refused with %v, but the server was asked %v", name, r.err, *asked)
	}
	if streamerr.As(r.err).Param != "model" {
		t.Errorf("%v does not name the field", r.err)
	}
	return streamerr.As(r.err).Reason.String()
}

// TestAdaptersThatAServerHasNotConfirmedAreRefused: such a server may ignore the name, and answer as the base model.
func TestAdaptersThatAServerHasNotConfirmedAreRefused(t *testing.T) {
	for name, test := range map[string]struct {
		owner, info    string
		listed         []string
		legal, medical string // the reasons of the refusals
	}{
		"a server of no known make":            {owner: "acme", legal: "invalid", medical: "invalid"},
		"a server of no known make, with list": {owner: "acme", listed: []string{"other", "legal"}, medical: "not_found"},
		"SGLang without --enable-lora":         {owner: "sglang", info: `{"lora_paths":null,"enable_lora":null}`, legal: "invalid", medical: "invalid"},
		"SGLang that says nothing":             {owner: "sglang", legal: "invalid", medical: "invalid"},
		"SGLang that lists adapters":           {owner: "sglang", listed: []string{"legal"}, medical: "not_found"},
		"SGLang that was started with names":   {owner: "sglang", info: `{"lora_paths":{"legal":"/adapters/legal"}}`, medical: "not_found"},
		"SGLang that was started with objects": {owner: "sglang", info: `{"lora_paths":[{"lora_name":"legal","lora_path":"/adapters/legal"}]}`, medical: "not_found"},
		"SGLang with settings of another form": {owner: "sglang", info: `{"lora_paths":["legal"]}`, legal: "invalid", medical: "invalid"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, counting, func(f *fake) { f.owner, f.info = test.owner, test.info; f.adapters.Store(&test.listed) })
			e := engineOn(t, f.URL)
			if got := askAdapter(t, f, e, "legal"); got != test.legal {
				t.Errorf("legal: %q, want %q", got, test.legal)
			}
			if got := askAdapter(t, f, e, "medical"); got != test.medical {
				t.Errorf("medical: %q, want %q", got, test.medical)
			}
			if _, can := e.Info(); can.GetAdapters() != (test.legal == "") {
				t.Errorf("the worker says that it takes adapters: %t", can.GetAdapters())
			}
		})
	}
}

// TestAnAdapterIsTakenOnceTheServerListsIt loads and unloads an adapter at a running server.
func TestAnAdapterIsTakenOnceTheServerListsIt(t *testing.T) {
	f := newFake(t, counting, func(f *fake) { f.owner = "acme" })
	e := engineOn(t, f.URL)
	if got := askAdapter(t, f, e, "legal"); got != "invalid" {
		t.Errorf("before: %q", got)
	}
	tried := f.known.Load()
	f.adapters.Store(&[]string{"legal"})
	polltest.Eventually(t, "the adapter to be known", func() bool { _, can := e.Info(); return can.GetAdapters() })
	if got := askAdapter(t, f, e, "legal"); got != "" {
		t.Errorf("loaded: %q", got)
	}
	f.adapters.Store(&[]string{"medical"})
	polltest.Eventually(t, "the adapter to be unknown", func() bool { return askAdapter(t, f, e, "legal") == "not_found" })
	if n := f.known.Load(); n != tried {
		t.Errorf("the server was tried %d times for its adapters", n-tried)
	}
}
