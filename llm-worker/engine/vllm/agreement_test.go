package vllm_test

import (
	"archive/zip"
	"bytes"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/internal/whencetiny"
	"github.com/whence-dev/whence/llm-worker/engine/beside"
	"github.com/whence-dev/whence/llm-worker/engine/beside/besidetest"
	"github.com/whence-dev/whence/llm-worker/engine/beside/lexicon"
	"github.com/whence-dev/whence/llm-worker/engine/vllm"
	"github.com/whence-dev/whence/llm-worker/engine/vllm/vllmtest"
)

// load returns the model of some files.
func load(t *testing.T, files fs.FS, name string) *lexicon.Model {
	t.Helper()
	m, err := lexicon.Load(files)
	if err != nil {
		t.Fatal(err)
	}
	m.Name = name
	return m
}

// packed returns the answer to GetTokenizer of a server with some files.
func packed(t *testing.T, files fs.FS) func(*besidetest.Server) besidetest.Message {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	text, err := fs.ReadFile(files, "tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	f, err := w.Create("tokenizer.json")
	if err == nil {
		_, err = f.Write(text)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return func(*besidetest.Server) besidetest.Message { return besidetest.Message(nil).AddText(1, b.String()) }
}

// TestServerOfAnotherModelIsRefused: a vLLM sends its tokenizer or, if it was started with a hub id, counts the
// tokens of a text.
func TestServerOfAnotherModelIsRefused(t *testing.T) {
	t.Parallel()
	own := load(t, whencetiny.FS(), "whence-tiny")
	notConfigured := status.Error(codes.Internal, "No tokenizer files found in org/tiny")
	for name, test := range map[string]struct {
		files *lexicon.Model
		sends bool
		more  int // tokens that the server has in a text
		vocab int32
		says  string // "" for a server of the same model
	}{
		"the same":         {own, true, 0, besidetest.Vocab, ""},
		"the same, by hub": {own, false, 0, besidetest.Vocab, ""},
		"another":          {load(t, besidetest.OtherModel(t), "other"), true, 0, besidetest.Vocab, `runs "tiny", and the model files of the worker (--model other) have other tokens: "`},
		"another, by hub":  {own, false, 2, besidetest.Vocab, "and the server counts"},
		"a smaller one":    {own, true, 0, 1000, "the server's vocabulary 1000"},
	} {
		dialect := vllmtest.Dialect()
		if test.sends {
			dialect.More["GetTokenizer"] = packed(t, whencetiny.FS())
		} else {
			dialect.Refuses = map[string]error{"GetTokenizer": notConfigured}
		}
		read := dialect.Read
		dialect.Read = func(m besidetest.Message) besidetest.Request {
			r := read(m)
			if m.Has(3) {
				r.Prompt = append(r.Prompt, make([]uint32, test.more)...)
			}
			return r
		}
		s := besidetest.Subject{Dialect: dialect, New: func(o beside.Options) (besidetest.Engine, error) { return vllm.New(o, own.Config(), test.files) }}
		server := besidetest.Start(t, dialect, besidetest.Count, "")
		server.Vocab.Store(test.vocab)
		e, health := s.Watched(t, server.Addr)
		if test.says == "" {
			polltest.Receive(t, name+": the server is healthy", health)
			if notes := e.Upstream().Notes; len(notes) > 0 {
				t.Errorf("%s: the operator reads %q", name, notes)
			}
			continue
		}
		polltest.Eventually(t, name, func() bool { return strings.Contains(e.(*vllm.Engine).Problem(), test.says) }) //nolint:forcetypeassert // New's
		if len(health) > 0 {
			t.Errorf("%s: the server is healthy", name)
		}
	}
}

// TestReasoningParserOfTheServerIsNamed: it voids guides, with the worker's files and without.
func TestReasoningParserOfTheServerIsNamed(t *testing.T) {
	t.Parallel()
	for name, files := range map[string]*lexicon.Model{"with files": load(t, whencetiny.FS(), "whence-tiny"), "without": nil} {
		s := besidetest.Subject{Dialect: vllmtest.Dialect(), New: func(o beside.Options) (besidetest.Engine, error) { return vllm.New(o, nil, files) }}
		s.Dialect.More["GetTokenizer"] = packed(t, whencetiny.FS())
		server := besidetest.Start(t, s.Dialect, besidetest.Count, "")
		server.Void.Store(true)
		e, health := s.Watched(t, server.Addr)
		polltest.Receive(t, name+": the server is healthy", health)
		up := e.Upstream()
		if slices.Contains(up.Capabilities.GetSampling(), "guide") || len(up.Notes) != 1 || !strings.Contains(up.Notes[0], `its "qwen3"`) || !strings.Contains(up.Notes[0], "enable_in_reasoning") {
			t.Errorf("%s: %v; the operator reads %q", name, up.Capabilities.GetSampling(), up.Notes)
		}
	}
}
