package prompt

import (
	"iter"
	"slices"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/internal/imagenote"
)

// Places are the places of a conversation at which a template writes a turn of a role.
type Places struct {
	First   bool `json:",omitzero"` // the beginning
	Leading bool `json:",omitzero"` // after other leading turns of the system
	Later   bool `json:",omitzero"` // after a turn of another role
	// OnlyAtUser means that texts at the beginning are written only in a conversation whose last turn
	// is the user's.
	OnlyAtUser bool `json:",omitzero"`
}

// names returns the names of the places.
func (p Places) names() (all []string) {
	for name, at := range map[string]bool{"first": p.First, "leading": p.Leading, "later": p.Later} {
		if at {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

// instructs reports whether a message is a system text: a client's instructions to the model.
func instructs(m *chatv1.Message) bool {
	return m.GetRole() == roleSystem || m.GetRole() == roleDeveloper
}

// placed returns a conversation whose system texts all stand where the template writes them: as
// turns of their own, or else as a part of the leading turn of the system, or else of the first
// turn of the user.
func (t *Template) placed(messages []*chatv1.Message) []*chatv1.Message {
	if !slices.ContainsFunc(messages, instructs) {
		return messages
	}
	out := make([]*chatv1.Message, 0, len(messages)+1)
	var homeless []*chatv1.Message
	lead := 0 // number of leading turns of the system in out
	atUser := messages[len(messages)-1].GetRole() == roleUser
	first := func(p Places) bool { return p.First && (atUser || !p.OnlyAtUser) }
	for _, m := range messages {
		if !instructs(m) {
			out = append(out, m)
			continue
		}
		role := t.roleAt(m.GetRole(), func(p Places) bool {
			switch {
			case len(out) > lead:
				return p.Later
			case lead > 0:
				return p.Leading
			default:
				return first(p)
			}
		})
		if role == "" {
			homeless = append(homeless, m)
			continue
		}
		if len(out) == lead {
			lead++
		}
		if role != m.GetRole() {
			m = copyOf(m)
			m.Role = role
		}
		out = append(out, m)
	}
	if len(homeless) == 0 {
		return out
	}
	if role := t.roleAt(homeless[0].GetRole(), first); role != "" {
		if lead == 0 {
			lead, out = 1, slices.Insert(out, 0, &chatv1.Message{Role: role})
		}
		out[lead-1] = joined(slices.Insert(homeless, 0, out[lead-1]))
		return out
	}
	at := slices.IndexFunc(out, func(m *chatv1.Message) bool { return m.GetRole() == roleUser })
	if at < 0 {
		at, out = 0, slices.Insert(out, 0, &chatv1.Message{Role: roleUser})
	}
	c := copyOf(out[at])
	text := joined(append(homeless, out[at]))
	c.Content, c.Images = text.GetContent(), text.GetImages()
	out[at] = c
	return out
}

// roleAt returns the role with which the template writes a system text of a role at a place, or "".
func (t *Template) roleAt(role string, at func(Places) bool) string {
	switch {
	case role == roleDeveloper && at(t.traits.Developer):
		return roleDeveloper
	case at(t.traits.System):
		return roleSystem
	case at(t.traits.Developer):
		return roleDeveloper
	default:
		return ""
	}
}

// joined returns the first of some messages with the contents of all, with an empty line between.
func joined(all []*chatv1.Message) *chatv1.Message {
	c := copyOf(all[0])
	var content passage
	for _, m := range all {
		if content.text.Len() > 0 && m.GetContent() != "" {
			content.text.WriteString("\n\n")
		}
		content.add(m, same)
	}
	content.into(c)
	return c
}

// plainer yields a conversation in forms that more templates take, for a template that refuses it
// otherwise: without reasoning, plain, plain without the assistant's turns that are empty, and with
// tools in the turn of the system.
func (t *Template) plainer(in Input) iter.Seq[Input] {
	return func(yield func(Input) bool) {
		bare := in
		bare.Messages = replace(in.Messages, func(m *chatv1.Message) *chatv1.Message {
			if m.GetReasoning() == "" {
				return m
			}
			c := copyOf(m)
			c.Reasoning = ""
			return c
		})
		if !slices.Equal(bare.Messages, in.Messages) && !yield(bare) {
			return
		}
		out, changed := t.plain(bare)
		if changed && !yield(out) {
			return
		}
		full := slices.DeleteFunc(slices.Clone(bare.Messages), func(m *chatv1.Message) bool {
			return m.GetRole() == roleAssistant && m.GetContent() == "" && len(m.GetImages()) == 0 && len(m.GetToolCalls()) == 0
		})
		if len(full) > 0 && len(full) < len(in.Messages) {
			bare.Messages = full
			if out, _ = t.plain(bare); !yield(out) {
				return
			}
		}
		if len(in.Tools) > 0 {
			out = t.described(in)
			out.Messages = t.placed(out.Messages)
			yield(out)
		}
	}
}

// plain returns a conversation in the form that the most templates take: calls and their results are
// text, turns of one role are one turn, and a user's turn is the first that is not the system's.
// changed is false if the conversation has this form.
func (t *Template) plain(in Input) (out Input, changed bool) {
	out = in
	if calls, results := called(in.Messages); calls || results {
		out.Messages = spelled(in.Messages, t.Around, false)
	}
	messages := make([]*chatv1.Message, 0, len(out.Messages)+1)
	for _, m := range out.Messages {
		last := len(messages) - 1
		switch {
		case last < 0 && !instructs(m) && m.GetRole() != roleUser, last >= 0 && instructs(messages[last]) && m.GetRole() == roleAssistant:
			messages = append(messages, &chatv1.Message{Role: roleUser}, m)
		case last >= 0 && messages[last].GetRole() == m.GetRole():
			messages[last] = joined([]*chatv1.Message{messages[last], m})
		default:
			messages = append(messages, m)
		}
	}
	if last := messages[len(messages)-1]; instructs(last) && !slices.ContainsFunc(messages, func(m *chatv1.Message) bool { return m.GetRole() == roleUser }) {
		messages[len(messages)-1] = &chatv1.Message{Role: roleUser, Content: last.GetContent(), Images: last.GetImages()}
	}
	changed = !slices.Equal(messages, in.Messages)
	out.Messages = messages
	return out, changed
}

// called reports whether any message has tool calls, and whether any is the result of one.
func called(messages []*chatv1.Message) (calls, results bool) {
	for _, m := range messages {
		calls, results = calls || len(m.GetToolCalls()) > 0, results || m.GetRole() == roleTool
	}
	return calls, results
}

// WithoutImages returns a conversation for a model without images: a note stands for each image that
// the answer does not need. An image that the answer needs stays, and is refused; so does one without
// a valid place.
func WithoutImages(messages []*chatv1.Message) []*chatv1.Message {
	if !slices.ContainsFunc(messages, func(m *chatv1.Message) bool { return len(m.GetImages()) > 0 }) {
		return messages
	}
	spare := imagenote.Spare(messages)
	return replace(messages, func(m *chatv1.Message) *chatv1.Message {
		if len(m.GetImages()) == 0 || !spare(m) || checkImages("", m) != nil {
			return m
		}
		c := copyOf(m)
		c.Content, c.Images = imagenote.Omit(m, imagenote.NoImages, func(*llmv1.Image) bool { return true })
		return c
	})
}

// withImagesOfUsers returns a conversation in which only users have images: those of other turns
// follow in a turn of the user.
func withImagesOfUsers(messages []*chatv1.Message, keeps func(role string) bool) []*chatv1.Message {
	moves := func(m *chatv1.Message) bool {
		return len(m.GetImages()) > 0 && m.GetRole() != roleUser && !keeps(m.GetRole())
	}
	if !slices.ContainsFunc(messages, moves) {
		return messages
	}
	var out []*chatv1.Message
	var moved passage
	for i, m := range messages {
		if moves(m) {
			moved.add(m, func(string) string { return "" })
			c := copyOf(m)
			c.Images, m = nil, c
		}
		out = append(out, m)
		if next := i + 1; len(moved.images) == 0 || next < len(messages) && messages[next].GetRole() == roleTool {
			continue
		}
		turn := &chatv1.Message{Role: roleUser}
		moved.into(turn)
		out, moved = append(out, turn), passage{}
	}
	return out
}
