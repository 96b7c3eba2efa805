package prompt

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
)

var rewrite = flag.Bool("rewrite", false, "write testdata/families/traits.json instead of comparing it")

// familyTemplates returns the templates of testdata/families.
func familyTemplates(t *testing.T) map[string]*Template {
	t.Helper()
	var families []struct {
		Name   string
		Tokens map[string]string
	}
	readJSON(t, "testdata/families/families.json", &families)
	all := map[string]*Template{}
	for _, f := range families {
		source, err := os.ReadFile(filepath.Join("testdata/families", f.Name+".jinja"))
		if err != nil {
			t.Fatal(err)
		}
		if all[f.Name], err = New(string(source), f.Tokens); err != nil {
			t.Fatalf("%s: %v", f.Name, err)
		}
	}
	return all
}

// TestTraitsOfFamilies compares what probes find in the templates of testdata/families with
// traits.json.
func TestTraitsOfFamilies(t *testing.T) {
	const golden = "testdata/families/traits.json"
	found := map[string]Traits{}
	for name, template := range familyTemplates(t) {
		found[name] = template.Traits()
	}
	if *rewrite {
		var text bytes.Buffer
		enc := json.NewEncoder(&text)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", " ")
		err := enc.Encode(found)
		if err == nil {
			err = os.WriteFile(golden, text.Bytes(), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var want map[string]Traits
	readJSON(t, golden, &want)
	if len(want) != len(found) {
		t.Errorf("%s has %d families of %d", golden, len(want), len(found))
	}
	for name, got := range found {
		got.Written.Tools = "" // is not in the file
		if !reflect.DeepEqual(got, want[name]) {
			t.Errorf("%s (go test -run TraitsOfFamilies -rewrite writes the file):\n got %+v\nwant %+v", name, got, want[name])
		}
	}
}

// agentConversation returns a random conversation of an agent, and the texts in it.
func agentConversation(random *rand.Rand) (in Input, texts []string) {
	text := func() string {
		texts = append(texts, fmt.Sprintf("text%03d.", len(texts)))
		return texts[len(texts)-1]
	}
	some := func(probability float64) bool { return random.Float64() < probability }
	turn := func(role, content string) {
		in.Messages = append(in.Messages, &chatv1.Message{Role: role, Content: content})
	}
	if some(.5) {
		turn(roleSystem, text())
	}
	turn(roleUser, text())
	for range 1 + random.IntN(5) {
		switch random.IntN(8) {
		case 0:
			turn(roleUser, text())
		case 1:
			turn([]string{roleSystem, roleDeveloper}[random.IntN(2)], text())
		case 2:
			turn(roleAssistant, "")
		case 3:
			turn(roleAssistant, text())
			in.Messages[len(in.Messages)-1].Reasoning = "because"
			turn(roleUser, text())
		default:
			m := &chatv1.Message{Role: roleAssistant}
			if some(.5) {
				m.Content = text()
			}
			if some(.5) {
				m.Reasoning = "because"
			}
			var results []*chatv1.Message
			form := random.IntN(4) // of ids; the last is that of servers that number the calls of each answer
			for n := range 1 + random.IntN(3) {
				id := []string{"", "call_" + strconv.Itoa(random.Int()), "abcdef" + strconv.Itoa(100+random.IntN(900)), "call_" + strconv.Itoa(n)}[form]
				m.ToolCalls = append(m.ToolCalls, &chatv1.ToolCall{Id: id, Name: []string{"get_weather", "search"}[random.IntN(2)], Arguments: `{"query": "` + text() + `"}`})
				results = append(results, &chatv1.Message{Role: roleTool, ToolCallId: id, Content: text()})
			}
			in.Messages = append(append(in.Messages, m), results...)
		}
	}
	if some(.7) {
		in.Tools = []*chatv1.Tool{{Name: "get_weather", Description: text(), Parameters: `{"type":"object","properties":{"city":{"type":"string","description":"` + text() + `"}}}`}, {Name: "search"}}
	}
	in.AddGenerationPrompt = some(.9)
	return in, texts
}

// Nothing of a conversation may be lost except reasoning, and nothing in its history may end it.
func TestConversationsOfAgentsAreShownCompletely(t *testing.T) {
	for name, template := range familyTemplates(t) {
		if name == "mirothinker" {
			continue // Jinja2 refuses it with an answer of the assistant
		}
		for seed := range uint64(60) {
			in, texts := agentConversation(rand.New(rand.NewPCG(seed, 0))) //nolint:gosec // tests need no secrets
			got, err := template.Render(t.Context(), in)
			if err != nil {
				t.Errorf("%s, %d: %v", name, seed, err)
				continue
			}
			lost := slices.DeleteFunc(texts, func(text string) bool { return strings.Contains(got, text) })
			writesNull := strings.HasPrefix(name, "command-") // as a part of JSON of their own
			if len(lost) > 0 || nones(got) > 0 && !writesNull {
				t.Errorf("%s, %d: %v are lost, or none is written, in\n%s\nof %v", name, seed, lost, got, in.Messages)
			}
		}
	}
}
