package server

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/whence-dev/whence/chat-service/prompt"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/internal/capability"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// Tokenize implements chatv1.ChatServer.
func (s *Server) Tokenize(ctx context.Context, req *chatv1.TokenizeRequest) (*chatv1.TokenizeResponse, error) {
	m, err := s.models.Model(req.GetModel())
	if err != nil {
		return nil, streamerr.Via(s.hop.Name, err)
	}
	text := prompt.Clean(req.GetText())
	if err := m.Counts("model"); err != nil {
		return nil, streamerr.Via(s.hop.Name, err)
	}
	switch {
	case len(req.GetMessages()) > 0 && text != "":
		return nil, streamerr.Via(s.hop.Name, streamerr.InvalidParam("prompt", "the request has both messages and a prompt; leave one of them out"))
	case len(req.GetMessages()) > 0:
		in := prompt.Input{
			Messages: m.Shown(req.GetMessages()), AddGenerationPrompt: req.GetAddGenerationPrompt(), Continue: req.GetContinueMessage(), Variables: req.GetTemplateVariables(),
		}
		if in.Tools, err = m.Offered(req); err == nil {
			text, err = m.Render.Prompt(ctx, in)
		}
		if err != nil {
			return nil, streamerr.Via(s.hop.Name, err)
		}
	case !utf8.ValidString(text):
		return nil, streamerr.Via(s.hop.Name, streamerr.InvalidParam("prompt", "prompt must be UTF-8"))
	}
	ids, err := m.EncodeText(text, req.GetAddSpecial())
	if err != nil {
		return nil, streamerr.Via(s.hop.Name, err)
	}
	resp := &chatv1.TokenizeResponse{Ids: ids, ContextLength: uint32(m.Context()), KnownFields: capability.TokenizeFields(req)}
	if req.GetStrings() {
		for i, id := range resp.GetIds() {
			resp.Strings = append(resp.Strings, strings.ToValidUTF8(string(m.Tokenizer.Bytes(id, i == 0)), "\uFFFD"))
		}
	}
	return resp, nil
}

// Detokenize implements chatv1.ChatServer.
func (s *Server) Detokenize(_ context.Context, req *chatv1.DetokenizeRequest) (*chatv1.DetokenizeResponse, error) {
	m, err := s.models.Model(req.GetModel())
	if err != nil {
		return nil, streamerr.Via(s.hop.Name, err)
	}
	if err := m.Counts("model"); err != nil {
		return nil, streamerr.Via(s.hop.Name, err)
	}
	for i, id := range req.GetIds() {
		if int64(id) >= int64(m.Tokenizer.VocabSize()) {
			at := fmt.Sprintf("tokens[%d]", i)
			return nil, streamerr.Via(s.hop.Name, streamerr.InvalidParam(at, "token id %d is not below %d, the size of the vocabulary", id, m.Tokenizer.VocabSize()))
		}
	}
	return &chatv1.DetokenizeResponse{Text: m.Tokenizer.Decode(req.GetIds(), false)}, nil
}
