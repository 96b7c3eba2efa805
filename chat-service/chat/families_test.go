package chat

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/whence-dev/whence/chat-service/postprocess"
	"github.com/whence-dev/whence/chat-service/prompt"
	"github.com/whence-dev/whence/chat-service/reasoning"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/answer"
	"github.com/whence-dev/whence/internal/doctable"
	"github.com/whence-dev/whence/internal/whencetiny"
	"github.com/whence-dev/whence/pkg/streamerr"
)

var rewriteTable = flag.Bool("rewrite", false, "write the table of families into bench/fidelity.md instead of comparing it")

// families is the directory of the chat templates, conversations and transcripts; scripts/families
// compares it with Jinja2.
const families = "../prompt/testdata/families"

// A family is a kind of models with one chat template.
type family struct {
	Name, Model, Licence string
	Tokens               map[string]string
	// Differs gives the reason of a prompt that differs from Jinja2's, by conversation.
	Differs map[string]string
	// Notes describe the peculiarities of the family.
	Notes string
}

// A familyTranscript is an answer in the form of a model. Its prompt has tools if the answer has calls.
// Special lists the special tokens in the answer.
type familyTranscript struct {
	Family, Variables string
	Special           []string
	Answer            string
	Reasoning, Text   string // as a client reads them
	Calls             []familyCall
}

type familyCall struct {
	Name      string
	Arguments json.RawMessage
}

// A familyGolden is Jinja2's prompt for a conversation. SHA256 is "" if Jinja2 refuses the
// conversation. Form names the changes of the conversation that the template needs, and Lacks the
// parts that the template does not write in any form.
type familyGolden struct {
	Family, Conversation, SHA256 string
	Form, Lacks                  []string
}

// A familyConversation has the form of OpenAI's API.
type familyConversation struct {
	Name                string
	Tools               bool
	AddGenerationPrompt bool `json:"add_generation_prompt"`
	Messages            []struct {
		Role, Content string
		Reasoning     string `json:"reasoning_content"`
		ID            string `json:"tool_call_id"`
		Calls         []struct {
			ID       string
			Function familyCall
		} `json:"tool_calls"`
	}
}

func (c *familyConversation) messages() (all []*chatv1.Message) {
	for _, m := range c.Messages {
		message := &chatv1.Message{Role: m.Role, Content: m.Content, Reasoning: m.Reasoning, ToolCallId: m.ID}
		for _, call := range m.Calls {
			message.ToolCalls = append(message.ToolCalls, &chatv1.ToolCall{Id: call.ID, Name: call.Function.Name, Arguments: compact(call.Function.Arguments)})
		}
		all = append(all, message)
	}
	return all
}

// compact returns JSON without white space, as clients write it.
func compact(object json.RawMessage) string {
	var b bytes.Buffer
	_ = json.Compact(&b, object) // has been read
	return b.String()
}

func readFamilyFile(t *testing.T, name string, into any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(families, name))
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// model returns whence-tiny with the chat template and the special tokens of a family.
func (f *family) model(t *testing.T, special []string) *Model {
	t.Helper()
	template, err := os.ReadFile(filepath.Join(families, f.Name+".jinja"))
	if err != nil {
		t.Fatal(err)
	}
	config, err := json.Marshal(f.Tokens)
	if err != nil {
		t.Fatal(err)
	}
	vocabulary, err := fs.ReadFile(whencetiny.FS(), "tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	added := ""
	for i, token := range special {
		added += fmt.Sprintf(`,{"id":%d,"content":%q,"single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true}`, 1536+i, token)
	}
	vocabulary = []byte(strings.Replace(string(vocabulary), `],"normalizer"`, added+`],"normalizer"`, 1))
	m, err := Load(fstest.MapFS{
		"chat_template.jinja": {Data: template}, "tokenizer_config.json": {Data: config},
		"tokenizer.json": {Data: vocabulary}, "config.json": {Data: []byte(`{"max_position_embeddings": 1000000}`)},
	}, f.Name, "")
	if err != nil {
		t.Fatalf("%s: %v", f.Name, err)
	}
	return m
}

// A familyRow is a row of the table.
type familyRow struct {
	*family
	model                                     *Model
	equal, adapted, completed, argued, failed int  // prompts
	played                                    int  // transcripts
	shows                                     bool // the template shows tools
	calls                                     bool // calls in the form of the model are read
	rereads                                   bool // the calls that the template writes are read
	refuses                                   bool // requests with tools are refused, by the name of the family
}

// TestFamilies plays the conversations of testdata/families with the chat template of each family,
// and compares the prompts with Jinja2's: they are equal, or complete where the template cannot write
// a part of the conversation. It then reads the answers of the transcripts, and keeps the table in the
// documentation. scripts/families shows Jinja2's prompt of a difference.
func TestFamilies(t *testing.T) {
	var all []*family
	readFamilyFile(t, "families.json", &all)
	var asked struct {
		Tools []struct {
			Function struct {
				Name, Description string
				Parameters        json.RawMessage
			}
		}
		Conversations []*familyConversation
	}
	readFamilyFile(t, "conversations.json", &asked)
	var list []familyGolden
	readFamilyFile(t, "goldens.json", &list)
	goldens := map[[2]string]*familyGolden{}
	for i, g := range list {
		goldens[[2]string{g.Family, g.Conversation}] = &list[i]
	}
	var tools []*chatv1.Tool
	for _, tool := range asked.Tools {
		tools = append(tools, &chatv1.Tool{Name: tool.Function.Name, Description: tool.Function.Description, Parameters: compact(tool.Function.Parameters)})
	}
	var transcripts []*familyTranscript
	readFamilyFile(t, "transcripts.json", &transcripts)
	var rows []*familyRow
	for _, f := range all {
		t.Run(f.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(12 * time.Hour) // templates write the date, and midnight is another day elsewhere
				var special []string
				for _, transcript := range transcripts {
					if transcript.Family == f.Name {
						special = append(special, transcript.Special...)
					}
				}
				slices.Sort(special)
				row := &familyRow{family: f, model: f.model(t, slices.Compact(special))}
				rows = append(rows, row)
				for _, c := range asked.Conversations {
					req := &chatv1.ChatRequest{Messages: c.messages(), NoGenerationPrompt: !c.AddGenerationPrompt}
					if c.Tools {
						req.Tools = tools
					}
					row.compare(t, req, c.Name, goldens[[2]string{f.Name, c.Name}])
				}
				row.reread(t, &chatv1.ChatRequest{Messages: []*chatv1.Message{{Role: "user", Content: "Weather?"}}, Tools: tools})
				for _, transcript := range transcripts {
					if transcript.Family != f.Name {
						continue
					}
					req := &chatv1.ChatRequest{Messages: []*chatv1.Message{{Role: "user", Content: "Weather?"}}, TemplateVariables: transcript.Variables}
					if len(transcript.Calls) > 0 {
						req.Tools = tools
					}
					row.play(t, transcript, req)
				}
			})
		})
	}
	if len(rows) < len(all) {
		return // -run selects some
	}
	if checkRows(t, rows); !t.Failed() {
		doctable.Keep(t, "../../bench/fidelity.md", "<!-- families -->\n", "<!-- end of families -->", familyTable(rows), *rewriteTable, "scripts/families goldens")
	}
}

// checkRows checks the formats of calls of all families: nine in ten of those with tools are read,
// and the others refuse tools by name.
func checkRows(t *testing.T, rows []*familyRow) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(families, "*.jinja"))
	if err != nil || len(files) != len(rows) {
		t.Errorf("%d templates for %d families, %v", len(files), len(rows), err)
	}
	for _, r := range rows {
		if r.shows && !r.calls && !r.refuses {
			t.Errorf("%s shows tools, but no answer with calls is read, and no request with tools is refused by its name", r.Name)
		}
	}
	shows := count(rows, func(r *familyRow) bool { return r.shows })
	if calls := count(rows, func(r *familyRow) bool { return r.shows && r.calls }); calls*10 < shows*9 {
		t.Errorf("of %d families with tools, %d have a format whose calls are read; want nine in ten", shows, calls)
	}
}

// compare renders a conversation as chat-service does.
func (r *familyRow) compare(t *testing.T, req *chatv1.ChatRequest, conversation string, want *familyGolden) {
	t.Helper()
	if want == nil {
		t.Fatalf("%s: there is no golden; run scripts/families goldens", conversation)
	}
	if _, err := r.model.Offered(req); err != nil {
		r.refuses = errors.Is(err, streamerr.Invalid) && strings.Contains(err.Error(), r.Name)
	}
	if conversation == "offered" {
		r.shows = want.SHA256 != "" && len(want.Lacks) == 0
	}
	got, err := r.model.Render(t.Context(), prompt.Input{Messages: r.model.Shown(req.GetMessages()), AddGenerationPrompt: !req.GetNoGenerationPrompt(), Tools: req.GetTools()})
	sum := sha256.Sum256([]byte(got))
	equal := hex.EncodeToString(sum[:8]) == want.SHA256
	switch {
	case err != nil && want.SHA256 == "" && errors.Is(err, streamerr.Invalid):
		r.failed++
		return
	case err != nil:
		t.Errorf("%s: %v", conversation, err)
		return
	case equal && len(want.Form) == 0:
		r.equal++
	case equal:
		r.adapted++
	case r.Differs[conversation] != "":
		r.argued++
	case want.SHA256 == "" || len(want.Lacks) > 0:
		r.completed++
	default:
		t.Errorf("%s: the prompt differs from Jinja2's, which scripts/families show %s '%s' prints; its form is %q:\n%s", conversation, r.Name, conversation, want.Form, got)
		return
	}
	parts := slices.Clone(want.Lacks)
	for _, m := range req.GetMessages() {
		parts = append(parts, strings.TrimSpace(m.GetContent()))
	}
	if before, _ := r.model.Markup.aroundArguments("get_weather"); r.model.Markup.sample == "" && conversation != "offered" && slices.Contains(want.Lacks, "get_weather") {
		parts = append(parts, before) // the form of the model's calls
	}
	for _, part := range parts {
		if !showsPart(got, part) {
			t.Errorf("%s: the prompt lacks %q:\n%s", conversation, part, got)
		}
	}
	if strings.Contains(strings.ReplaceAll(got, "] = None", ""), "None") && !slices.ContainsFunc(req.GetMessages(), callsWithNull) {
		t.Errorf("%s: the prompt says None:\n%s", conversation, got)
	}
}

// callsWithNull reports whether a turn has arguments that are null, which some templates write as
// Python does.
func callsWithNull(m *chatv1.Message) bool {
	return slices.ContainsFunc(m.GetToolCalls(), func(call *chatv1.ToolCall) bool { return strings.Contains(call.GetArguments(), "null") })
}

// showsPart reports whether a prompt contains a text, as it is or as a part of JSON.
func showsPart(prompt, part string) bool {
	spelled, _ := json.Marshal(part)
	plain := strings.NewReplacer(`\u003c`, "<", `\u003e`, ">", `\u0026`, "&").Replace(string(spelled))
	return strings.Contains(prompt, part) || strings.Contains(prompt, strings.Trim(plain, `"`))
}

// play reads a transcript whole, cut in two between any two characters, token by token, and character
// by character.
func (r *familyRow) play(t *testing.T, transcript *familyTranscript, req *chatv1.ChatRequest) {
	t.Helper()
	p, err := r.model.prepareMessages(t.Context(), req)
	if err != nil {
		t.Errorf("transcript: %v", err)
		return
	}
	r.played++
	r.calls = r.calls || len(transcript.Calls) > 0
	tok := r.model.Tokenizer
	ids := tok.Encode(transcript.Answer, false)
	whole := readPieces(p, ids)
	want := familyAnswer{Reasoning: transcript.Reasoning, Text: transcript.Text, Calls: canonical(transcript.Calls)}
	if whole != want {
		t.Errorf("transcript %q:\n got %v\nwant %v", transcript.Answer, whole, want)
	}
	check := func(pieces ...[]uint32) {
		t.Helper()
		if got := readPieces(p, pieces...); got != whole {
			t.Errorf("transcript in %d pieces, the first of which is %q:\n got %v\nwant %v", len(pieces), tok.Decode(pieces[0], false), got, whole)
		}
	}
	var characters [][]uint32
	for i, id := range ids {
		check(ids[:i], ids[i:])
		text := tok.Decode([]uint32{id}, false)
		if slices.Contains(transcript.Special, text) || !utf8.ValidString(text) {
			characters = append(characters, []uint32{id})
			continue
		}
		for cut, r := range text {
			if cut > 0 {
				check(slices.Concat(ids[:i], tok.Encode(text[:cut], false)), slices.Concat(tok.Encode(text[cut:], false), ids[i+1:]))
			}
			characters = append(characters, tok.Encode(string(r), false))
		}
	}
	check(slices.Collect(slices.Chunk(ids, 1))...)
	check(characters...)
}

// reread reads the calls that the template writes as earlier answers, as if they were an answer.
func (r *familyRow) reread(t *testing.T, req *chatv1.ChatRequest) {
	t.Helper()
	const weather, search = `get_weather{"city":"Paris","days":2,"deep":true}`, ` search{"query":"Xqgamma"}`
	written := r.model.Traits.Written
	for text, want := range map[string]string{written.Call: weather, written.Calls: weather + search} {
		if text == "" {
			continue
		}
		if strings.HasPrefix(text, "get_weather<|message|>") {
			text = " to=" + text // also begins turns without a call, so that the probe drops it
		}
		r.rereads = true
		p, err := r.model.prepareMessages(t.Context(), req)
		if err != nil {
			t.Errorf("calls of the template: %v", err)
			return
		}
		if got := readPieces(p, r.model.Tokenizer.Encode(text, false)); got.Calls != want || strings.Contains(got.Text, "Paris") {
			t.Errorf("calls of the template %q:\n got %v\nwant %s", text, got, want)
		}
	}
}

// A familyAnswer is an answer as a client reads it.
type familyAnswer struct{ Reasoning, Text, Calls string }

func (a familyAnswer) String() string {
	return fmt.Sprintf("reasoning %q, text %q, calls %s", a.Reasoning, a.Text, a.Calls)
}

// readPieces processes tokens that arrive in pieces.
func readPieces(p *tokenPrompt, pieces ...[]uint32) familyAnswer {
	post := postprocess.New(p.postprocess())
	var a answer.Answer
	for _, ids := range pieces {
		delta, end := post.Tokens(&workerv1.Tokens{Ids: ids})
		a.Add(delta.GetDelta())
		if end != nil {
			break
		}
	}
	delta, _ := post.End(&llmv1.End{Reason: streamv1.Reason_REASON_COMPLETED, Finish: llmv1.Finish_FINISH_STOP, Usage: &llmv1.Usage{}})
	a.Add(delta.GetDelta())
	var calls []string
	for _, call := range a.Calls() {
		calls = append(calls, call.GetName()+canonicalObject(call.GetArguments()))
	}
	return familyAnswer{a.Reasoning(), a.Text(), strings.Join(calls, " ")}
}

func canonical(calls []familyCall) string {
	var all []string
	for _, call := range calls {
		all = append(all, call.Name+canonicalObject(string(call.Arguments)))
	}
	return strings.Join(all, " ")
}

// canonicalObject returns JSON with sorted members, or a text that is not JSON as it is.
func canonicalObject(text string) string {
	var value any
	if json.Unmarshal([]byte(text), &value) != nil {
		return text
	}
	sorted, _ := json.Marshal(value)
	return string(sorted)
}

// count returns the number of rows with a property.
func count(rows []*familyRow, has func(*familyRow) bool) (n int) {
	for _, r := range rows {
		if has(r) {
			n++
		}
	}
	return n
}

// familyTable returns the table for the documentation.
func familyTable(rows []*familyRow) string {
	var b strings.Builder
	b.WriteString("| family | equal | in another form | completed | refused by both | argued | calls | reasoning | answers |\n|---|--:|--:|--:|--:|--:|---|---|--:|\n")
	for _, r := range rows {
		format, thinks := "none", "none"
		if f := r.model.Markup.Calls; f != nil {
			format = f.Name
		}
		switch f := r.model.Markup.thinks(); f {
		case nil:
			thinks = "`" + strings.TrimSpace(r.model.Markup.Calls.Thought.Open) + "`"
		case reasoning.Guess:
		default:
			thinks = "`" + strings.ReplaceAll(f.Open, "|", `\|`) + "`"
		}
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %d | %d | %s | %s | %d |\n", r.Name, r.equal, r.adapted, r.completed, r.failed, r.argued, format, thinks, r.played)
	}
	var equal, adapted, completed, failed, argued, played int
	for _, r := range rows {
		equal, adapted, completed, failed, argued, played = equal+r.equal, adapted+r.adapted, completed+r.completed, failed+r.failed, argued+r.argued, played+r.played
	}
	shows, calls := count(rows, func(r *familyRow) bool { return r.shows }), count(rows, func(r *familyRow) bool { return r.shows && r.calls })
	fmt.Fprintf(&b, "\n%d families, %d prompts: %d equal, %d in another form, %d completed, %d refused by both, %d argued. "+
		"The templates of %d families show tools; calls in the form of %d of them are read. %d templates write calls, and all of these are read.\n%d answers are read, and no reasoning leaks into a text.\n",
		len(rows), equal+adapted+completed+failed+argued, equal, adapted, completed, failed, argued, shows, calls, count(rows, func(r *familyRow) bool { return r.rereads }), played)
	for _, r := range rows {
		var notes []string
		if r.Notes != "" {
			notes = append(notes, r.Notes)
		}
		for _, reason := range slices.Sorted(maps.Values(r.Differs)) {
			if !slices.Contains(notes, reason) {
				notes = append(notes, reason)
			}
		}
		if len(notes) > 0 {
			fmt.Fprintf(&b, "\n- %s: %s.", r.Name, strings.Join(notes, "; "))
		}
	}
	b.WriteString("\n")
	return b.String()
}
