package prompt

import chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"

// arranged returns a conversation whose assistant's turns with calls have the form that a template
// takes: text is what becomes of a text beside the calls, and reasoned of a text beside calls and
// reasoning. With oneCall, several calls of a turn become turns of one call and its result.
func arranged(messages []*chatv1.Message, text, reasoned Texts, oneCall bool) []*chatv1.Message {
	out := make([]*chatv1.Message, 0, len(messages))
	latest := len(messages) // the number of the turn after which there is no answer and no turn of the user
	for latest > 0 && (len(messages[latest-1].GetToolCalls()) > 0 || messages[latest-1].GetRole() == roleTool) {
		latest--
	}
	for i := 0; i < len(messages); i++ {
		m := messages[i]
		if len(m.GetToolCalls()) == 0 {
			out = append(out, m)
			continue
		}
		places := text
		if m.GetReasoning() != "" {
			places = reasoned
		}
		place := places.Earlier
		if i >= latest {
			place = places.Latest
		}
		if (m.GetContent() != "" || len(m.GetImages()) > 0) && place != Kept {
			var before []*chatv1.Message
			before, m = withoutText(m, place)
			out = append(out, before...)
		}
		if !oneCall || len(m.GetToolCalls()) == 1 {
			out = append(out, m)
			continue
		}
		results := messages[i+1:]
		for n, r := range results {
			if r.GetRole() != roleTool {
				results = results[:n]
				break
			}
		}
		out = append(out, oneByOne(m, results)...)
		i += len(results)
	}
	return out
}

// withoutText returns a turn with calls without its text, and the turns that precede it instead.
func withoutText(m *chatv1.Message, place Place) (before []*chatv1.Message, calls *chatv1.Message) {
	calls = copyOf(m)
	calls.Content, calls.Images = "", nil
	if place == InReasoning && len(m.GetImages()) == 0 {
		if calls.Reasoning != "" {
			calls.Reasoning += "\n\n"
		}
		calls.Reasoning += m.GetContent()
		return nil, calls
	}
	before = []*chatv1.Message{{Role: roleAssistant, Name: m.GetName(), Content: m.GetContent(), Images: m.GetImages()}}
	if place == BeforeUser {
		before = append(before, &chatv1.Message{Role: roleUser})
	}
	return before, calls
}

// oneByOne returns turns of one call and its result for a turn with several calls. Results of no call
// follow the last.
func oneByOne(m *chatv1.Message, results []*chatv1.Message) (out []*chatv1.Message) {
	of := make(map[string][]*chatv1.Message, len(results))
	for _, r := range results {
		of[r.GetToolCallId()] = append(of[r.GetToolCallId()], r)
	}
	for i, call := range m.GetToolCalls() {
		turn := &chatv1.Message{Role: roleAssistant, Name: m.GetName()}
		if i == 0 {
			turn = copyOf(m)
		}
		turn.ToolCalls = []*chatv1.ToolCall{call}
		out = append(append(out, turn), of[call.GetId()]...)
		delete(of, call.GetId())
	}
	for _, r := range results {
		if _, left := of[r.GetToolCallId()]; left {
			out = append(out, r)
		}
	}
	return out
}
