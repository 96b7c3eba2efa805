package e2e

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/whence-dev/whence/internal/seeingtest"
	"github.com/whence-dev/whence/internal/tier"
)

// clientsDir returns the directory in which scripts/clients has installed the libraries and tools of
// Python and Java.
func clientsDir(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("WHENCE_CLIENTS")
	if dir == "" {
		t.Skip("only scripts/clients runs this test, which installs the clients")
	}
	return dir
}

// libraries are the clients of sessions, by the directory of their packages.
var libraries = map[string][]string{
	"python": {
		"openai", "openai-responses", "anthropic", "huggingface_hub", "ollama",
		"litellm-openai", "litellm-hosted_vllm", "litellm-mistral", "litellm-anthropic", "litellm-ollama_chat",
		"langchain-openai", "langchain-anthropic", "langchain-ollama",
		"pydantic-ai", "pydantic-ai-responses", "pydantic-ai-anthropic", "claude-agent-sdk",
	},
	"python-openai2": {"llama-index", "llama-index-ollama", "instructor"},
	"java":           {"openai-java", "anthropic-java", "langchain4j"},
}

// TestLibrariesHoldASession plays a session of five turns with each client of Python and Java: a tool, an
// image from a tool, a NUL, a call that was cut off, and an answer that is aborted and then continued.
func TestLibrariesHoldASession(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	dir := clientsDir(t)
	w := sessionService(t)
	t.Run("of", func(t *testing.T) {
		for environment, clients := range libraries {
			command := []string{filepath.Join(dir, environment, "bin", "python"), "habits/python/session.py"}
			if environment == "java" {
				command = []string{tool(t, "java"), "-cp", filepath.Join(dir, environment, "*"), "habits/java/Session.java"}
			}
			for _, client := range clients {
				t.Run(client, func(t *testing.T) {
					t.Parallel()
					holdSession(t, w, append(slices.Clone(command), client))
				})
			}
		}
	})
	w.idle(t)
}

// holdSession runs the command of a client. Nothing that the client sends is refused, or comes twice.
func holdSession(t *testing.T, w *whence, command []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), nodePatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], append(command[1:], onceEach(t, w.url("")))...)
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "LITELLM_LOCAL_MODEL_COST_MAP=True") // litellm would fetch a list of prices
	endsWithChildren(cmd)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %v\n%s", cmd, err, out)
	}
}

// sessionService starts the whole path in front of the model of the sessions, which sees images: many
// libraries move the images of a tool's result to a message of the user.
func sessionService(t *testing.T) *whence {
	t.Helper()
	dir := wideModel(t, 1<<18)
	edit(t, filepath.Join(dir, "tokenizer_config.json"), map[string]any{"chat_template": sessionTemplate})
	edit(t, filepath.Join(dir, "config.json"), map[string]any{"image_token_id": seeingtest.Placeholder, "vision_config": map[string]any{"patch_size": 14}})
	return run(t, allInOne, servedBy(dir, scriptedServer(t, sessionAnswer)))
}

// sessionTemplate is the template of agents, with places for images.
var sessionTemplate = strings.Replace(agentTemplate, "{{ message.content or '' }}", `{% if message.content is string %}{{ message.content }}{% else %}`+
	`{% for part in message.content or [] %}{% if part.type == 'image' %}`+seeingtest.Text+`{% else %}{{ part.text }}{% endif %}{% endfor %}{% endif %}`, 1)

var (
	sessionTool = regexp.MustCompile(`"name": ?"([A-Za-z_]*read_file|Word)"`) // some clients put a prefix before the name
	sessionTurn = regexp.MustCompile(`Read (\S+) with the tool\.|Which call was cut\?|Tell a story\.|Go on\.`)
)

// sessionResults has what the tool of the sessions returns, by the path: the model says it again.
var sessionResults = map[string]string{"word.txt": "fox-17", "fox.png": "a picture of a fox", "zip.bin": "PK\uFFFD"}

// sessionAnswer is the model of the sessions. It reads the last question of a prompt and what follows,
// calls the tool, says what the tool has returned, and knows what the conversation before contains.
func sessionAnswer(prompt string) string {
	turns := sessionTurn.FindAllStringSubmatchIndex(prompt, -1)
	if turns == nil {
		return "A conversation about files"
	}
	last := turns[len(turns)-1]
	question, after, before := prompt[last[0]:last[1]], prompt[last[1]:], prompt[:last[0]]
	tool := sessionTool.FindStringSubmatch(prompt)
	switch {
	case last[2] >= 0:
		path := prompt[last[2]:last[3]]
		if result := sessionResults[path]; strings.Contains(after, result) {
			return "The tool says: " + result
		}
		switch calls := strings.Count(after, "<tool_call>"); {
		case calls > 1: // the tool does not work
		case tool != nil:
			return toolCall(tool[1], "path", path)
		case strings.Contains(prompt, `"ToolSearch"`): // Claude Code shows the tools of a program when they are searched
			return toolCall("ToolSearch", "query", "select:mcp__files__read_file")
		}
	case strings.HasPrefix(question, "Which") && strings.Contains(before, "cutmark"):
		return "It was the one with cutmark."
	case strings.HasPrefix(question, "Tell"):
		return "Once upon a time there was a fox." + unended
	case strings.HasPrefix(question, "Go") && strings.Contains(before, "Once"):
		return "I go on."
	}
	return "A conversation about files"
}

// toolCall returns a call with one argument, as the model writes it.
func toolCall(tool, name, value string) string {
	return fmt.Sprintf("<tool_call>\n{\"name\": %q, \"arguments\": {%q: %q}}\n</tool_call>", tool, name, value)
}

// unended at the end of a scripted answer leaves the answer open until the caller has gone.
const unended = "…"

// scriptedServer starts a server like vLLM, whose model answers a prompt with the result of say.
// Conversations with images come as messages, whose JSON is the prompt, and the others as tokens.
func scriptedServer(t *testing.T, say func(prompt string) string) (url string) {
	t.Helper()
	tok := tinyTokenizer(t)
	return completionServer(t, resumable, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var asked completionBody
		if err == nil {
			err = json.Unmarshal(body, &asked)
		}
		prompt := string(body)
		if asked.Prompt != nil {
			var ids []uint32
			err = errors.Join(err, json.Unmarshal(asked.Prompt, &ids))
			prompt = tok.Decode(ids, false)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		answer := cmp.Or(asked.guided(), say(prompt))
		text, open := strings.CutSuffix(answer, unended)
		c := &providerCall{ResponseWriter: w, request: r, provider: &provider{variant: resumable, tok: tok, answer: tok.Encode(text, false)}}
		switch {
		case asked.MaxTokens == 1: // the worker's trial request
			c.limit = 1
			c.say()
		case open:
			c.tokens(0)
			c.hang()
		default:
			c.say()
		}
	}).URL
}

// noteFields adds the paths of the members of a request's body, after a prefix.
func noteFields(into map[string]bool, prefix string, body []byte) {
	into[prefix] = true
	var object map[string]json.RawMessage
	var list []json.RawMessage
	if json.Unmarshal(body, &object) == nil {
		for name, value := range object {
			noteFields(into, prefix+"."+name, value)
		}
	} else if json.Unmarshal(body, &list) == nil {
		for _, value := range list {
			noteFields(into, prefix+"[]", value)
		}
	}
}

// keepFields writes the fields of a test's requests to the directory in WHENCE_REQUESTS, if it is set:
// scripts/clients compares them with those of the newest versions.
func keepFields(t *testing.T, fields map[string]bool) {
	t.Helper()
	dir := os.Getenv("WHENCE_REQUESTS")
	if dir == "" {
		return
	}
	file := filepath.Join(dir, strings.ReplaceAll(t.Name(), "/", "-")+".txt")
	if err := os.WriteFile(file, []byte(strings.Join(slices.Sorted(maps.Keys(fields)), "\n")+"\n"), 0o600); err != nil {
		t.Error(err)
	}
}
