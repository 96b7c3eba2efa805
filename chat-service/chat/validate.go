package chat

import (
	"fmt"
	"unicode/utf8"

	"github.com/whence-dev/whence/chat-service/choices"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

const (
	maxStops    = 16
	maxStopSize = 1024 // bytes
	maxSession  = 256  // bytes
)

// validate refuses a request that no later step could handle. The template checks the conversation,
// and the worker checks the sampling.
func validate(req *chatv1.ChatRequest) error {
	for _, check := range []func(*chatv1.ChatRequest) error{checkStops, checkPrompts, choices.Check, checkAnswered, checkSession} {
		if err := check(req); err != nil {
			return err
		}
	}
	return nil
}

func checkStops(req *chatv1.ChatRequest) error {
	if len(req.GetStop()) > maxStops {
		return streamerr.InvalidParam("stop", "stop has %d strings; at most %d are allowed", len(req.GetStop()), maxStops)
	}
	for i, s := range req.GetStop() {
		if s == "" || len(s) > maxStopSize || !utf8.ValidString(s) {
			at := fmt.Sprintf("stop[%d]", i)
			return streamerr.InvalidParam(at, "%s must be UTF-8 of 1 to %d bytes", at, maxStopSize)
		}
	}
	return nil
}

func checkAnswered(req *chatv1.ChatRequest) error {
	n, told := choices.Count(req), len(req.GetAnsweredChoices())
	switch {
	case req.GetAnswered() == nil && told == 0:
		return nil
	case !req.GetTellIds():
		return streamerr.InvalidParam("answered", "an answer that was begun elsewhere can continue only if tell_ids is set")
	case n > 1 && req.GetAnswered() != nil:
		return streamerr.InvalidParam("answered", "the request has %d choices; use answered_choices instead", n)
	case told > 0 && (n == 1 || told != n):
		return streamerr.InvalidParam("answered_choices", "there are %d answered choices for %d choices; there must be one for each choice (use answered for a single choice)", told, n)
	}
	return nil
}

func checkPrompts(req *chatv1.ChatRequest) error {
	if len(req.GetPrompts()) > 0 && len(req.GetMessages()) > 0 {
		return streamerr.InvalidParam("prompt", "the request has both messages and a prompt; leave one of them out")
	}
	if req.GetEcho() && len(req.GetPrompts()) == 0 {
		return streamerr.InvalidParam("echo", "there is no prompt to echo")
	}
	for i, p := range req.GetPrompts() {
		at := "prompt"
		if len(req.GetPrompts()) > 1 {
			at = fmt.Sprintf("prompt[%d]", i)
		}
		if err := checkPrompt(at, p); err != nil {
			return err
		}
	}
	return nil
}

// checkPrompt refuses a prompt that is neither valid text nor token ids. at is the name of its
// field.
func checkPrompt(at string, p *chatv1.Prompt) error {
	switch c := p.GetContent().(type) {
	case *chatv1.Prompt_Text:
		if !utf8.ValidString(c.Text) {
			return streamerr.InvalidParam(at, "%s must be UTF-8", at)
		}
	case *chatv1.Prompt_Ids:
		if len(c.Ids.GetIds()) == 0 {
			return streamerr.InvalidParam(at, "%s has no tokens", at)
		}
	default:
		return streamerr.InvalidParam(at, "%s is neither text nor token ids", at)
	}
	return nil
}

func checkSession(req *chatv1.ChatRequest) error {
	if n := len(req.GetSession()); n > maxSession {
		return streamerr.InvalidParam("session", "session is %d bytes long; it can have at most %d", n, maxSession)
	}
	return nil
}
