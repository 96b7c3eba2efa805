package accounts

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/whence-dev/whence/chat-service/choices"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
)

// eos is the token that ends an answer of the fake engines.
const eos = 0

// A plan is the script of one stream.
type plan struct {
	kind   string
	req    *chatv1.ChatRequest
	cached uint32
	whole  bool // a completed stream delivers all generated tokens to the client

	leaveAfter time.Duration // when the client leaves; 0 for never
	breakAt    int           // number of the item whose write to the client fails; 0 for none
	reads      time.Duration // time that the client takes per item, while tokens queue up on the hops
}

func (c *plan) String() string { return c.req.GetStreamId() + " (" + c.kind + ")" }

// parts returns the ids of the stream on the workers.
func (c *plan) parts() []string {
	if n := choices.Count(c.req); n > 1 {
		var ids []string
		for i := range n {
			ids = append(ids, choices.ID(c.req.GetStreamId(), i))
		}
		return ids
	}
	return []string{c.req.GetStreamId()}
}

// A script tells any engine what to do with a stream.
type script struct {
	ids    []uint32 // the answer; then eos
	limit  int      // maximum number of tokens; 0 for all
	cached uint32

	mu        sync.Mutex // guards the following fields
	losses    []int      // lengths of the answer at which an engine loses the stream, each once
	refusals  int        // number of refusals before an engine accepts an answer to resume
	generated int        // by all engines
	prompt    int        // tokens, without the answer
}

// lose reports whether the engine loses the stream now, when the answer has n tokens.
func (s *script) lose(n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.losses) == 0 || s.losses[0] != n {
		return false
	}
	s.losses = s.losses[1:]
	return true
}

// begin records a request, and reports whether it is refused.
func (s *script) begin(prompt, generated int) (refused bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if generated > 0 && s.refusals > 0 {
		s.refusals--
		return true
	}
	s.prompt = prompt - generated
	return false
}

// next returns the token after n tokens of the answer. last reports that the answer ends with this
// token, or, if ok is false, before it.
func (s *script) next(n int) (id uint32, ok, last bool, finish llmv1.Finish) {
	if s.limit > 0 && n >= s.limit {
		return 0, false, true, llmv1.Finish_FINISH_LENGTH
	}
	s.mu.Lock()
	s.generated++
	s.mu.Unlock()
	if n >= len(s.ids) {
		return eos, true, true, llmv1.Finish_FINISH_STOP
	}
	if n+1 == s.limit {
		return s.ids[n], true, true, llmv1.Finish_FINISH_LENGTH
	}
	return s.ids[n], true, false, llmv1.Finish_FINISH_UNSPECIFIED
}

// scripts holds the scripts of all streams, by the streams' ids on the workers.
type scripts struct {
	mu   sync.Mutex
	byID map[string]*script
}

func (s *scripts) of(id string) *script {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byID[id]
}

func (s *scripts) set(id string, one *script) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byID[id] = one
}

// generated returns the number of tokens that engines have generated for a stream.
func (s *scripts) generated(c *plan) (n int) {
	for _, id := range c.parts() {
		n += s.of(id).generated
	}
	return n
}

// prompt returns the length of a stream's prompt, in tokens.
func (s *scripts) prompt(c *plan) (n int) {
	for _, id := range c.parts() {
		n = max(n, s.of(id).prompt)
	}
	return n
}

const call = "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\"}}\n</tool_call>\n"

// plan draws the i-th random stream.
func (p *path) plan(r *rand.Rand, i int) *plan {
	words := strings.Fields("the fox lives in a harbor and tells long stories about boats ropes and the wind that never ends")
	say := func(n int) string {
		var b strings.Builder
		for range n {
			b.WriteString(words[r.IntN(len(words))] + " ")
		}
		return b.String()
	}
	c := &plan{whole: true, cached: r.Uint32N(4), reads: time.Duration(r.IntN(3)) * 20 * time.Millisecond}
	c.req = &chatv1.ChatRequest{
		StreamId: fmt.Sprintf("stream-%d", i), Model: p.model.Name, Messages: []*chatv1.Message{{Role: "user", Content: say(5)}},
		Sampling: &llmv1.Sampling{},
	}
	text, limit := say(1+r.IntN(40)), 0
	switch kind := r.IntN(8); kind {
	case 0, 1:
		c.kind = "stop token"
	case 2:
		c.kind, text = "length", say(60)
		limit = 1 + r.IntN(30)
		c.req.Sampling.MaxTokens = proto.Uint32(uint32(limit))
	case 3:
		c.kind, c.whole = "stop string", false
		text += "HALT" + say(50)
		c.req.Stop = []string{"HALT"}
	case 4:
		c.kind, c.leaveAfter = "left by its client", time.Duration(1+r.IntN(300))*time.Millisecond
		text = say(60)
	case 5:
		c.kind, c.breakAt, text = "cannot be written", 1+r.IntN(20), say(60)
	case 6:
		c.kind, text = "tools", say(3)+call+call
		c.req.Tools = []*chatv1.Tool{{Name: "get_weather"}}
		if r.IntN(2) == 0 {
			c.kind, c.whole = "one tool", false
			text += say(50)
			c.req.ParallelToolCalls = proto.Bool(false)
		}
	case 7:
		c.kind = "choices"
		c.req.N = 2 + r.Uint32N(3)
	}
	for j, id := range c.parts() {
		said := text
		if j > 0 {
			said = say(1 + r.IntN(40))
		}
		one := &script{ids: p.model.Tokenizer.Encode(said, false), limit: limit, cached: c.cached}
		for at, n := 0, r.IntN(3); n > 0; n-- {
			at += 1 + r.IntN(20)
			one.losses = append(one.losses, at)
		}
		if r.IntN(3) == 0 {
			one.refusals = 1
		}
		p.scripts.set(id, one)
	}
	return c
}

// relose puts back a loss that must occur later.
func (s *script) relose(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.losses = append([]int{n}, s.losses...)
}
