package models

import (
	"context"
	"log/slog"
	"strings"
	"sync"

	"github.com/whence-dev/whence/chat-service/chat"
	"github.com/whence-dev/whence/chat-service/prompt"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/internal/capability"
)

// A templateCheck compares the chat template of a model with those of the servers of its workers. A server that was
// started with a template of its own gets prompts of this one all the same, and its clients would get
// other answers from it directly.
type templateCheck struct {
	model *chat.Model
	log   *slog.Logger
	ours  func() string // the greeting, rendered here; "" if it cannot be

	mu   sync.Mutex
	told map[string]string // what each worker's server has rendered, as last told, by the worker's name
}

func newTemplateCheck(m *chat.Model, log *slog.Logger) *templateCheck {
	c := &templateCheck{model: m, log: log, told: map[string]string{}}
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

// trim removes the tokens that begin every text, which some servers add to the prompt of a template later, and white
// space at the end, in which implementations of templates differ.
func (c *templateCheck) trim(text string) string {
	begin := c.model.Tokenizer.Decode(c.model.Tokenizer.Encode("", true), false)
	return strings.TrimSpace(strings.TrimPrefix(text, begin))
}

// compare logs a difference, once for each worker and difference.
func (c *templateCheck) compare(info *llmv1.WorkerInfo) {
	theirs, instance := info.GetRendered(), info.GetInstance()
	c.mu.Lock()
	known := c.told[instance] == theirs
	if theirs == "" {
		delete(c.told, instance)
	} else {
		c.told[instance] = theirs
	}
	c.mu.Unlock()
	if known || theirs == "" || c.ours() == "" {
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
		"worker", instance, "server", excerpt(there, at), "here", excerpt(here, at), "then", "give both the same chat template, or ask the server directly to see what differs")
}

// maxExcerpt bounds a quoted part of a prompt, in bytes.
const maxExcerpt = 60

// excerpt returns the part of a prompt where it differs, with some text before it.
func excerpt(text string, at int) string {
	from := max(0, at-maxExcerpt/3)
	return strings.ToValidUTF8(text[from:min(len(text), from+maxExcerpt)], "")
}
