package route

import (
	"strings"
	"testing"
	"testing/synctest"

	"google.golang.org/protobuf/proto"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

const (
	blind   = llmv1.ImageInput_IMAGE_INPUT_UNSPECIFIED
	beside  = llmv1.ImageInput_IMAGE_INPUT_PROMPT
	renders = llmv1.ImageInput_IMAGE_INPUT_CONVERSATION
)

// showing sets how the workers of a pool take images.
func showing(p *Pool, how ...llmv1.ImageInput) {
	makeOf(p, strings.Split(strings.Repeat("gpu ", len(how)), " ")...)
	for i, w := range p.Members() {
		now := proto.CloneOf(w.Info())
		now.Resumes, now.Capabilities.Images = true, how[i]
		w.Say(now)
	}
}

func withImages(limit uint32, conversation string) *workerv1.TokenRequest {
	req := ask(limit)
	req.Sampling = &llmv1.Sampling{MaxTokens: proto.Uint32(limit)}
	req.Images, req.Conversation, req.BeforeImages = []*llmv1.Image{{Data: []byte("x"), MediaType: "image/png"}}, conversation, 1
	return req
}

func TestImagesGoToEnginesThatTakeThem(t *testing.T) {
	for name, test := range map[string]struct {
		how          []llmv1.ImageInput
		conversation string
		asked        int // the index of the worker that answers; -1 if none
		says         string
	}{
		"beside the prompt":           {[]llmv1.ImageInput{blind, beside}, "", 1, ""},
		"in a conversation":           {[]llmv1.ImageInput{blind, renders}, "{}", 1, ""},
		"not without a conversation":  {[]llmv1.ImageInput{renders, beside}, "", 1, ""},
		"nowhere":                     {[]llmv1.ImageInput{blind, blind}, "{}", -1, "the engine (gpu) takes none"},
		"nowhere for a prompt":        {[]llmv1.ImageInput{renders, renders}, "", -1, "only within a conversation"},
		"nowhere, least is preferred": {[]llmv1.ImageInput{blind, renders}, "", -1, "the engine (gpu) takes"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fakes := []*fake{{name: "w/0"}, {name: "w/1"}}
				p := poolOf(t, Options{Policy: inOrder}, fakes...)
				showing(p, test.how...)
				req := withImages(3, test.conversation)
				got := read(t.Context(), p, req, nil)
				for i, f := range fakes {
					if len(f.asked) != 0 != (i == test.asked) {
						t.Errorf("worker %d was asked %d times: %v", i, len(f.asked), got.err)
					}
				}
				if test.asked >= 0 {
					asked := fakes[test.asked].asked[0]
					if got.err != nil || len(asked.GetImages()) != 1 || asked.GetConversation() != test.conversation || asked.GetBeforeImages() != 1 {
						t.Error(got.err, asked)
					}
				} else if e := streamerr.As(got.err); e.Reason != streamerr.Invalid || e.Param != "images" || !strings.Contains(e.Message, test.says) {
					t.Error(got.err)
				}
			})
		})
	}
}

// A stream with images may move to an engine that gets the images beside the same prompt. An engine
// that renders the conversation has a prompt of its own, so its stream ends with its worker.
func TestStreamWithImagesMovesWithThem(t *testing.T) {
	for name, test := range map[string]struct {
		how   []llmv1.ImageInput
		moves bool
	}{
		"from prompt to prompt":       {[]llmv1.ImageInput{beside, beside}, true},
		"from prompt to conversation": {[]llmv1.ImageInput{beside, renders}, false},
		"from conversation to prompt": {[]llmv1.ImageInput{renders, beside}, false},
		"between conversations":       {[]llmv1.ImageInput{renders, renders}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := failing("w/0", 4, 0, streamerr.PeerLost), &fake{name: "w/1"}
				p := poolOf(t, Options{Policy: inOrder, Migrations: 3}, a, b)
				showing(p, test.how...)
				got := read(t.Context(), p, withImages(9, "{}"), nil)
				if !test.moves {
					if e := streamerr.As(got.err); e.Reason != streamerr.PeerLost || len(b.asked) != 0 || len(got.tokens) != 4 {
						t.Error(got.err, len(b.asked), got.tokens)
					}
					return
				}
				if got.err != nil || len(got.tokens) != 9 || len(b.asked) != 1 || len(b.asked[0].GetImages()) != 1 || b.asked[0].GetGenerated() != 4 {
					t.Error(got.err, got.tokens, b.asked)
				}
			})
		})
	}
}

// Before its first token a stream with images may go to any engine that takes its images.
func TestRequestWithImagesIsRetriedWithThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := failing("w/0", -1, 0, streamerr.Unavailable), &fake{name: "w/1"}
		p := poolOf(t, Options{Policy: inOrder}, a, b)
		showing(p, renders, renders)
		got := read(t.Context(), p, withImages(3, "{}"), nil)
		if got.err != nil || len(b.asked) != 1 || len(b.asked[0].GetImages()) != 1 {
			t.Error(got.err, b.asked)
		}
	})
}

func TestPromptWithImagesIsNotHandedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads, answers := reader("r/0"), answerer("w/0")
		p := poolOf(t, Options{HandoverAbove: 0}, reads, answers)
		for i, w := range p.Members() {
			now := proto.CloneOf(w.Info())
			now.Role = []llmv1.Role{llmv1.Role_ROLE_PREFILL, llmv1.Role_ROLE_DECODE}[i]
			now.Capabilities = &llmv1.Capabilities{Sampling: []string{"max_tokens"}, Images: beside}
			w.Say(now)
		}
		if got := read(t.Context(), p, withImages(3, ""), nil); got.err != nil || len(reads.asked) != 0 || len(answers.asked) != 1 {
			t.Error(got.err, len(reads.asked), len(answers.asked))
		}
	})
}

func TestImagesAreTakenIfAnEngineMayTakeThem(t *testing.T) {
	none, some := &llmv1.Capabilities{}, &llmv1.Capabilities{Images: beside}
	for name, c := range map[string]struct {
		can   [2]*llmv1.Capabilities
		takes bool
	}{
		"neither": {[2]*llmv1.Capabilities{none, none}, false}, "one": {[2]*llmv1.Capabilities{none, some}, true}, "not told": {[2]*llmv1.Capabilities{}, true}, "one is told": {[2]*llmv1.Capabilities{nil, none}, false},
	} {
		p := poolOf(t, Options{}, &fake{name: "w/0"}, &fake{name: "w/1"})
		for i, w := range p.Members() {
			now := proto.CloneOf(w.Info())
			now.Capabilities = c.can[i]
			w.Say(now)
		}
		if p.TakesImages() != c.takes {
			t.Errorf("%s: %t", name, !c.takes)
		}
	}
}
