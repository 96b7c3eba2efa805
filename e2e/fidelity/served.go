package main

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/whence-dev/whence/chat-service/prompt"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// servedInput converts a template's variables to chat-service's input. ok is false if no request
// can express them.
func servedInput(vars object) (in prompt.Input, ok bool) {
	options := object{}
	for _, m := range vars {
		switch v := m.value.(type) {
		case []object:
			if m.key == "messages" {
				for _, o := range v {
					message, ok := servedMessage(o)
					if !ok {
						return in, false
					}
					in.Messages = append(in.Messages, message)
				}
				continue
			}
			for _, o := range v {
				tool, ok := servedTool(o)
				same := func(other *chatv1.Tool) bool { return other.GetName() == tool.GetName() }
				if !ok || slices.ContainsFunc(in.Tools, same) {
					return in, false
				}
				in.Tools = append(in.Tools, tool)
			}
		case nil:
		default:
			switch {
			case m.key == "add_generation_prompt":
				in.AddGenerationPrompt = v == true
			case !strings.HasSuffix(m.key, "_token"):
				options = append(options, m)
			}
		}
	}
	in.Variables = text(options)
	return in, len(in.Messages) > 0
}

// text returns a value of ours as JSON.
func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

var toolRoles = []string{"system", "user", "assistant", "tool"}

func servedMessage(o object) (*chatv1.Message, bool) {
	m := &chatv1.Message{}
	none := false
	for _, member := range o {
		s, isText := member.value.(string)
		switch member.key {
		case "tool_calls":
			list, ok := member.value.([]object)
			if !ok || len(list) == 0 {
				return nil, false
			}
			for _, o := range list {
				call, ok := servedCall(o)
				if !ok {
					return nil, false
				}
				m.ToolCalls = append(m.ToolCalls, call)
			}
			continue
		case "content":
			if none = member.value == nil; none {
				continue
			}
			m.Content = s
		case "role":
			m.Role = s
		case "name":
			m.Name = s
		case "tool_call_id":
			m.ToolCallId = s
		case "reasoning_content":
			m.Reasoning = s
			isText = isText && s != "" // which no request can express
		}
		if !isText {
			return nil, false
		}
	}
	called := len(m.GetToolCalls()) > 0
	// In a request, a turn without text has an empty content.
	return m, slices.Contains(toolRoles, m.GetRole()) && !none && (!called || m.GetRole() == "assistant") && !strings.Contains(m.GetContent(), "\x00")
}

func servedCall(o object) (*chatv1.ToolCall, bool) {
	call := &chatv1.ToolCall{}
	call.Id, _ = o[0].value.(string)
	function, _ := o[2].value.(object)
	call.Name, _ = function[0].value.(string)
	arguments, ok := function[1].value.(object)
	call.Arguments = text(arguments)
	return call, ok
}

func servedTool(o object) (*chatv1.Tool, bool) {
	function, _ := o[1].value.(object)
	t := &chatv1.Tool{}
	t.Name, _ = function[0].value.(string)
	t.Description, _ = function[1].value.(string)
	t.Parameters = text(function[2].value)
	return t, len(function) == 3 && t.GetDescription() != "" && !strings.ContainsAny(t.GetName(), ".погда")
}

// agrees reports whether chat-service and Jinja2 give the same result: the text, or a refusal. If
// Jinja2 fails on arguments that are objects, chat-service passes them as text.
func agrees(t *prompt.Template, in prompt.Input, want rendering) (got string, ok bool) {
	got, err := t.Verbatim(context.Background(), in)
	switch {
	case want.Text != nil:
		return got, err == nil && got == *want.Text
	case want.Raised != nil:
		return got, errors.Is(err, streamerr.Invalid)
	default:
		return got, err == nil || errors.Is(err, streamerr.Invalid)
	}
}
