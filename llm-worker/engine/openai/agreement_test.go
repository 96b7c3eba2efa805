package openai_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/llm-worker/engine/beside/besidetest"
	"github.com/whence-dev/whence/llm-worker/engine/openai"
)

// shifted answers POST /tokenize with the ids of another vocabulary.
func shifted(w http.ResponseWriter, _ *http.Request) {
	fmt.Fprint(w, `{"count":4,"max_model_len":1024,"tokens":[300,301,302,303]}`)
}

// answered answers POST /tokenize with a status.
func answered(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
}

// TestServerOfAnotherModelIsRefused: the worker would send, and read, the ids of another vocabulary, and the
// server answer with nonsense.
func TestServerOfAnotherModelIsRefused(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*fake)
		says   string
	}{
		"vLLM":                 {func(f *fake) { f.tokenize = shifted }, "at the server, from token 0 on"},
		"llama.cpp":            {func(f *fake) { f.owner, f.texts, f.tokenize = "llamacpp", true, shifted }, "300 301 302 303"},
		"vLLM behind a proxy":  {func(f *fake) { f.owner, f.tokenize, f.extra = "acme", nil, 1 }, "at the server"},
		"somebody, who counts": {func(f *fake) { f.owner, f.tokenize, f.extra, f.texts = "acme", nil, 1, true }, "and the server counts"},
	} {
		f := newFake(t, counting, test.change)
		e, health, _ := watched(t, nil, f.URL)
		const both = `runs "served", and the model files of the worker (--model whence-tiny) have other tokens: "`
		polltest.Eventually(t, name, func() bool { return strings.Contains(e.Problem(), both) && strings.Contains(e.Problem(), test.says) })
		if len(health) > 0 || len(e.Problem()) > 512 {
			t.Errorf("%s: %d changes of health, %q", name, len(health), e.Problem())
		}
	}
}

// TestServerTellsHowItsTemplateWritesAGreeting: chat-service compares that prompt with its own.
func TestServerTellsHowItsTemplateWritesAGreeting(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*fake)
		want   string
	}{
		"vLLM":                     {func(*fake) {}, besidetest.Rendered("Hi")},
		"vLLM without /tokenize":   {func(f *fake) { f.tokenize = nil }, ""},
		"a make that is not known": {func(f *fake) { f.owner = "acme" }, ""},
	} {
		f := newFake(t, counting, test.change)
		if got := engineOn(t, f.URL).Upstream().Rendered; got != test.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestServerThatDoesNotTellItsTokensIsUsed: a server may have no such endpoint, or not offer it to the worker.
func TestServerThatDoesNotTellItsTokensIsUsed(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*fake)
		note   string
	}{
		"told":                             {func(*fake) {}, ""},
		"not found":                        {func(f *fake) { f.tokenize = nil }, ""},
		"refused":                          {func(f *fake) { f.tokenize = answered(http.StatusUnauthorized) }, ""},
		"not built":                        {func(f *fake) { f.tokenize = answered(http.StatusNotImplemented) }, ""},
		"text alone":                       {func(f *fake) { f.owner, f.texts, f.plain, f.tokenize = "library", true, true, nil }, ""},
		"text, counted a little otherwise": {func(f *fake) { f.owner, f.texts, f.plain, f.tokenize, f.extra = "library", true, true, nil, 1 }, "counts tokens otherwise"},
		"splits otherwise":                 {func(f *fake) { f.tokenize = besidetest.TokenizeCharacters }, "splits texts otherwise"},
	} {
		f := newFake(t, counting, test.change)
		notes := strings.Join(engineOn(t, f.URL).Upstream().Notes, "; ")
		if test.note == "" && notes != "" || !strings.Contains(notes, test.note) {
			t.Errorf("%s: the operator reads %q", name, notes)
		}
	}
}

// TestUnprovedAgreementIsLoggedOnce: a server that tells nothing about its tokens is used, and the log says so.
func TestUnprovedAgreementIsLoggedOnce(t *testing.T) {
	t.Parallel()
	f := newFake(t, counting, func(f *fake) { f.tokenize, f.silent = nil, true })
	e, health, log := watched(t, nil, f.URL, func(o *openai.Options) { o.Key = "sk-secret" })
	polltest.Receive(t, "the server is healthy", health)
	asked := f.looks.Load()
	polltest.Eventually(t, "it is asked again", func() bool { return f.looks.Load() > asked+2 })
	if n := strings.Count(log.String(), "could not be proved"); n != 1 || len(e.Upstream().Notes) != 1 {
		t.Errorf("%d notes in the log, and %q", n, e.Upstream().Notes)
	}
}
