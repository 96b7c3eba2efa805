package e2e

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"testing"
)

// oddTemplate drops system texts after the first, calls and results, refuses most efforts, and turns
// thinking off.
const oddTemplate = `{% if reasoning_effort | default('low') not in ('low', 'high') %}{{ raise_exception('effort') }}{% endif %}` +
	`{% if messages[0].role in ('system', 'developer') %}<|im_start|>developer
{{ messages[0].content }}<|im_end|>
{% set rest = messages[1:] %}{% else %}{% set rest = messages %}{% endif %}{% for m in rest %}{% if m.role in ('user', 'assistant') %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is defined and not enable_thinking %}<think>

</think>

{% endif %}{% endif %}`

func writeOddTemplate(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "odd.jinja")
	if err := os.WriteFile(path, []byte(oddTemplate), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// checkOddTemplate checks that a model with oddTemplate is sent every text of a conversation, by any API:
// its prompt has as many tokens as the wanted one.
func checkOddTemplate(t *testing.T, w *whence, model string) {
	t.Helper()
	const (
		developer, user, answered, open = "<|im_start|>developer\n", "<|im_start|>user\n", "<|im_start|>assistant\n", "<|im_end|>\n<|im_start|>assistant\n"
		end, off                        = "<|im_end|>\n", "<think>\n\n</think>\n\n"
		chats, messages, responses      = "/v1/chat/completions", "/v1/messages", "/v1/responses"
	)
	turn := func(role, text string) map[string]any { return map[string]any{"role": role, "content": text} }
	call := map[string]any{"role": "assistant", "tool_calls": []any{map[string]any{"id": "a", "type": "function", "function": map[string]any{"name": "f", "arguments": `{"city": "Par`}}}}
	result := map[string]any{"role": "tool", "tool_call_id": "a", "content": "PK\x00"}
	hi, hiPrompt := []any{turn("user", "Hi")}, user+"Hi"+open
	for _, c := range []struct {
		path string
		body ask
		want string
	}{
		{chats, ask{"messages": []any{turn("system", "Be kind."), turn("user", "a"), turn("assistant", "b"), turn("system", "Be brief."), turn("user", "c")}}, developer + "Be kind.\n\nBe brief." + end + user + "a" + end + answered + "b" + end + user + "c" + open},
		{chats, ask{"messages": []any{turn("user", "a"), turn("developer", "Be brief."), turn("user", "c")}}, developer + "Be brief." + end + user + "a" + end + user + "c" + open},
		{messages, ask{"system": "Be kind.", "messages": []any{turn("user", "a"), turn("system", "Be brief."), turn("user", "c")}}, developer + "Be kind.\n\nBe brief." + end + user + "a" + end + user + "c" + open},
		{responses, ask{"instructions": "Be kind.", "input": []any{turn("user", "a"), turn("developer", "Be brief."), turn("user", "c")}}, developer + "Be kind.\n\nBe brief." + end + user + "a" + end + user + "c" + open},
		{chats, ask{"messages": []any{turn("user", "a"), call, result}}, user + "a" + end + answered + "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"INVALID_JSON\": \"{\\\"city\\\": \\\"Par\"}}\n</tool_call>" + end + user + "<tool_response>\nPK\uFFFD\n</tool_response>" + open},
		{chats, ask{"messages": hi, "reasoning_effort": "xhigh"}, hiPrompt}, {chats, ask{"messages": hi, "reasoning_effort": "none"}, hiPrompt + off},
		{chats, ask{"messages": hi, "reasoning": map[string]any{"effort": "none"}}, hiPrompt + off}, {chats, ask{"messages": hi, "thinking": map[string]any{"type": "disabled"}}, hiPrompt + off},
		{messages, ask{"messages": hi, "output_config": map[string]any{"effort": "medium"}}, hiPrompt}, {responses, ask{"input": "Hi", "reasoning": map[string]any{"effort": "none"}}, hiPrompt + off},
	} {
		c.body["model"] = model
		c.body[map[string]string{chats: "max_tokens", messages: "max_tokens", responses: "max_output_tokens"}[c.path]] = 1
		r := w.postTo(t, c.path, c.body)
		var got struct {
			Usage struct {
				Prompt int `json:"prompt_tokens"`
				Input  int `json:"input_tokens"`
				Cached int `json:"cache_read_input_tokens"`
			}
		}
		if err := json.Unmarshal(r.body, &got); err != nil || r.status != http.StatusOK {
			t.Errorf("%s %v: status %d: %s", c.path, c.body, r.status, r.body)
			continue
		}
		var wanted struct{ Count int }
		if err := json.Unmarshal(w.postTo(t, "/tokenize", ask{"model": model, "prompt": c.want, "add_special_tokens": false}).body, &wanted); err != nil || wanted.Count == 0 {
			t.Fatal(err)
		}
		if n := got.Usage.Prompt + got.Usage.Input + got.Usage.Cached; n != wanted.Count {
			t.Errorf("%s %v: the prompt has %d tokens, want the %d of %q", c.path, c.body, n, wanted.Count, c.want)
		}
	}
}
