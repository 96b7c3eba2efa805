package models

import (
	"context"
	"hash/maphash"
	"log/slog"
	"strings"
	"sync"

	"github.com/whence-dev/whence/chat-service/chat"
	"github.com/whence-dev/whence/chat-service/prompt"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/internal/capability"
)

// A templateCheck compares the chat template of a model with the templates of its workers' servers. This
// service renders every prompt itself. So if a server has another template, its own clients get other
// answers than the clients of this service.
type templateCheck struct {
	model *chat.Model
	log   *slog.Logger
	ours  func() string // the greeting as this service renders it; "" if it cannot
	seed  maphash.Seed

	mu   sync.Mutex        // guards the following field
	told map[string]uint64 // hashes of the servers' renderings, by the names of their workers
}

// maxTold bounds the workers whose renderings are known. A worker that leaves stays known. When there are
// more, all are forgotten, and their differences are logged again.
const maxTold = 4096

func newTemplateCheck(m *chat.Model, log *slog.Logger) *templateCheck {
	c := &templateCheck{model: m, log: log, seed: maphash.MakeSeed(), told: map[string]uint64{}}
	c.ours = sync.OnceValue(func() string {
		if !m.HasTemplate {
			return ""
		}
		text, err := m.Render.Prompt(context.Background(), prompt.Input{Messages: []*chatv1.Message{{Role: "user", Content: capability.Greeting}}, AddGenerationPrompt: true})
		if err != nil {
			return ""
		}
		return c.trim(text)
	})
	return c
}

// trim removes the tokens that begin every text, which some servers add to the prompt of a template later.
// It also removes white space at the end, where implementations of templates differ.
func (c *templateCheck) trim(text string) string {
	begin := c.model.Tokenizer.Decode(c.model.Tokenizer.Encode("", true), false)
	return strings.TrimSpace(strings.TrimPrefix(text, begin))
}

// compare logs a difference, once for each worker and difference.
func (c *templateCheck) compare(info *llmv1.WorkerInfo) {
	theirs := info.GetRendered()
	if c.isKnown(info.GetInstance(), theirs) || theirs == "" || c.ours() == "" {
		return
	}
	here, there := c.ours(), c.trim(theirs)
	if here == there {
		return
	}
	at := 0
	for at < len(here) && at < len(there) && here[at] == there[at] {
		at++
	}
	c.log.Warn("the server of a worker renders conversations otherwise than this service, whose chat template is used",
		"worker", info.GetInstance(), "server", excerpt(there, at), "here", excerpt(here, at), "then", "give both the same chat template, or ask the server directly to see what differs")
}

// isKnown reports whether the server of a worker has rendered the greeting like this before, and
// remembers it.
func (c *templateCheck) isKnown(worker, rendered string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if rendered == "" {
		delete(c.told, worker)
		return false
	}
	hash := maphash.String(c.seed, rendered)
	before, known := c.told[worker]
	if !known && len(c.told) >= maxTold {
		clear(c.told)
	}
	c.told[worker] = hash
	return known && before == hash
}

// maxExcerpt bounds a quoted part of a prompt, in bytes.
const maxExcerpt = 60

// excerpt returns the part of a prompt from a difference on, with some text before it.
func excerpt(text string, at int) string {
	from := max(0, at-maxExcerpt/3)
	return strings.ToValidUTF8(text[from:min(len(text), from+maxExcerpt)], "")
}
