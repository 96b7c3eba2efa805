package responses_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/whence-dev/whence/api-service/call"
	"github.com/whence-dev/whence/api-service/call/calltest"
	"github.com/whence-dev/whence/api-service/edge/sse"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// begin is the first item of the streams in these tests.
var begin = calltest.Started(&llmv1.Started{StreamId: "s", Model: "m", PromptTokens: 7})

// A script is a stream. Its events are in the file of testdata with its name.
type script struct {
	body   string // more fields of the request
	items  []*chatv1.GenerateResponse
	failed *streamerr.Error
}

func calls(pieces ...*chatv1.ToolCallDelta) []*chatv1.ToolCallDelta { return pieces }

func probability(token string) *chatv1.TokenLogprob {
	return &chatv1.TokenLogprob{Token: token, Bytes: []byte(token), Logprob: -0.5, Top: []*chatv1.TokenLogprob{{Token: "x", Bytes: []byte("x"), Logprob: -1}}}
}

var scripts = map[string]script{
	"text": {
		body: `,"instructions":"Be kind.","metadata":{"a":"b"},"temperature":0.7,"reasoning":{"effort":"low","summary":"auto"},"user":"u","service_tier":"flex","max_output_tokens":9`,
		items: []*chatv1.GenerateResponse{
			calltest.Delta(&chatv1.Delta{Text: "He"}), calltest.Delta(&chatv1.Delta{Text: "\"y\"\n"}),
			calltest.End(&llmv1.End{Finish: llmv1.Finish_FINISH_STOP, Usage: &llmv1.Usage{PromptTokens: 7, CachedTokens: new(uint32(4)), CompletionTokens: 3}}),
		},
	},
	"reasoning-text-and-calls": {
		body: `,"include":["reasoning.encrypted_content"],"tools":[{"type":"function","name":"f","parameters":{"type": "object"}}],"tool_choice":{"type":"function", "name":"f"},"parallel_tool_calls":true`,
		items: []*chatv1.GenerateResponse{
			calltest.Delta(&chatv1.Delta{Reasoning: "Hm"}), calltest.Delta(&chatv1.Delta{Reasoning: ".", Text: "\n"}), calltest.Delta(&chatv1.Delta{Text: "I look."}),
			calltest.Delta(&chatv1.Delta{ToolCalls: calls(&chatv1.ToolCallDelta{Id: "a", Name: "f"}, &chatv1.ToolCallDelta{Arguments: `{"city":`})}),
			calltest.Delta(&chatv1.Delta{ToolCalls: calls(&chatv1.ToolCallDelta{Arguments: `"Paris"}`}, &chatv1.ToolCallDelta{Index: 1, Id: "b", Name: "g"})}),
			calltest.End(&llmv1.End{Finish: llmv1.Finish_FINISH_TOOL_CALLS, Usage: &llmv1.Usage{PromptTokens: 7, CompletionTokens: 9, ReasoningTokens: new(uint32(2))}}),
		},
	},
	"logprobs": {
		body: `,"include":["message.output_text.logprobs"],"top_logprobs":1`,
		items: []*chatv1.GenerateResponse{
			calltest.Delta(&chatv1.Delta{Reasoning: "Hm", Logprobs: []*chatv1.TokenLogprob{probability("Hm")}}),
			calltest.Delta(&chatv1.Delta{Text: "He", Logprobs: []*chatv1.TokenLogprob{probability("He")}}),
			calltest.Delta(&chatv1.Delta{Logprobs: []*chatv1.TokenLogprob{probability("")}}),
			calltest.End(&llmv1.End{Finish: llmv1.Finish_FINISH_STOP, Usage: &llmv1.Usage{PromptTokens: 7, CompletionTokens: 3}}),
		},
	},
	"cut-off-in-a-call": {
		items: []*chatv1.GenerateResponse{
			calltest.Delta(&chatv1.Delta{ToolCalls: calls(&chatv1.ToolCallDelta{Id: "a", Name: "f", Arguments: `{"x`})}),
			calltest.End(&llmv1.End{Finish: llmv1.Finish_FINISH_LENGTH}),
		},
	},
	"tool-search": {
		body: `,"tools":[{"type":"tool_search","execution":"client","description":"d","parameters":{"type":"object"}}]`,
		items: []*chatv1.GenerateResponse{
			calltest.Delta(&chatv1.Delta{ToolCalls: calls(&chatv1.ToolCallDelta{Id: "a", Name: "tool_search"}, &chatv1.ToolCallDelta{Arguments: `{"query":`})}),
			calltest.Delta(&chatv1.Delta{ToolCalls: calls(&chatv1.ToolCallDelta{Arguments: `"x"}`})}),
			calltest.Delta(&chatv1.Delta{ToolCalls: calls(&chatv1.ToolCallDelta{Index: 1, Id: "b", Name: "tool_search", Arguments: "x"})}),
			calltest.End(&llmv1.End{Finish: llmv1.Finish_FINISH_TOOL_CALLS}),
		},
	},
	"withheld": {
		items: []*chatv1.GenerateResponse{calltest.Delta(&chatv1.Delta{Text: "He"}), calltest.End(&llmv1.End{Finish: llmv1.Finish_FINISH_CONTENT_FILTER})},
	},
	"nothing": {
		items: []*chatv1.GenerateResponse{calltest.End(&llmv1.End{Finish: llmv1.Finish_FINISH_STOP})},
	},
	"failed": {
		items: []*chatv1.GenerateResponse{calltest.Delta(&chatv1.Delta{Reasoning: "Hm"}), calltest.Delta(&chatv1.Delta{Text: "He"})},
		failed: &streamerr.Error{
			Reason: streamerr.EngineFailed, Path: streamerr.NewPath("engine", "llm-worker/0", "chat-service", "api-service"), Message: `it is "lost"`, Code: "context_length_exceeded",
		},
	},
	"stopped-by-its-client": {
		items:  []*chatv1.GenerateResponse{calltest.Delta(&chatv1.Delta{Text: "He"})},
		failed: &streamerr.Error{Reason: streamerr.UserStop, Path: streamerr.NewPath("client", "api-service"), Message: "stopped"},
	},
}

// times are the members whose values are times.
var times = regexp.MustCompile(`"(created_at|completed_at)":\d+`)

// TestStreamsAreWrittenAsEvents compares the events with testdata. For a missing file the test
// prints the contents.
func TestStreamsAreWrittenAsEvents(t *testing.T) {
	for name, s := range scripts {
		c := parser.Parse(t, "{"+hi+s.body+`,"stream":true}`)
		got := times.ReplaceAllString(eventsOf(c, s), `"$1":1`)
		file := filepath.Join("testdata", name+".txt")
		want, err := os.ReadFile(file)
		if err != nil || got != string(want) {
			t.Errorf("%s: %v\n%s", file, err, got)
		}
		checkEvents(t, name, got)
	}
}

// eventsOf returns the events of a script.
func eventsOf(c *call.Call, s script) string {
	lines := sse.Encoder{Identity: true}
	write := c.Events()
	write(begin, &lines)
	for _, out := range s.items {
		write(out, &lines)
	}
	if s.failed != nil {
		c.Failure(s.failed, "s", &lines)
	}
	encoded, _ := lines.Take()
	return string(encoded)
}

// An event has the members that the checks of all events need.
type event struct {
	Type     string
	Sequence int    `json:"sequence_number"`
	Index    int    `json:"output_index"`
	ItemID   string `json:"item_id"`
	Delta    string
	Item     struct{ ID, Type, Status string }
	Response *struct {
		ID, Status string
		Output     []struct {
			ID, Type, Status string
			Arguments        any
			Content          []struct{ Text string }
		}
	}
	Whence *struct {
		Reason, Origin string
		Path           []string
	}
}

// checkEvents checks the rules for every stream: events have the numbers 0, 1, 2 and so on, and
// their type as their name; each item's events have its id and index; the deltas of an item join to
// its text; and only the last event ends the stream.
func checkEvents(t *testing.T, name, text string) {
	t.Helper()
	var all []event
	for block := range strings.SplitSeq(strings.TrimSuffix(text, "\n\n"), "\n\n") {
		var e event
		label, data, _ := strings.Cut(block, "\ndata: ")
		if err := json.Unmarshal([]byte(data), &e); err != nil || label != "event: "+e.Type || e.Sequence != len(all) {
			t.Fatalf("%s: event %d is %s: %v", name, len(all), block, err)
		}
		all = append(all, e)
	}
	var ids, texts []string
	for _, e := range all {
		switch {
		case e.Type == "response.output_item.added":
			if e.Index != len(ids) {
				t.Errorf("%s: event %d opens item %d", name, e.Sequence, e.Index)
			}
			ids, texts = append(ids, e.Item.ID), append(texts, "")
		case e.ItemID != "" && (e.Index != len(ids)-1 || e.ItemID != ids[e.Index]):
			t.Errorf("%s: event %d is of the item %d, %s", name, e.Sequence, e.Index, e.ItemID)
		case e.ItemID != "":
			texts[e.Index] += e.Delta
		}
	}
	ends := slices.IndexFunc(all, func(e event) bool { return e.Whence != nil })
	last := all[len(all)-1]
	if ends != len(all)-1 || last.Whence.Reason == "" || last.Whence.Origin != last.Whence.Path[0] {
		t.Errorf("%s: event %d of %d ends the stream: %+v", name, ends, len(all), last.Whence)
	}
	if last.Response == nil {
		return
	}
	for i, it := range last.Response.Output {
		text, _ := it.Arguments.(string)
		if it.Type == "tool_search_call" { // which comes as a whole
			text = ""
		}
		for _, part := range it.Content {
			text += part.Text
		}
		if it.ID != ids[i] || text != texts[i] || it.Status == "in_progress" {
			t.Errorf("%s: item %d is %+v, and its events said %s: %q", name, i, it, ids[i], texts[i])
		}
	}
}

// TestAnAnswerIsTheSameAtOnceAndInPieces compares the response in the last event with the answer in
// one body.
func TestAnAnswerIsTheSameAtOnceAndInPieces(t *testing.T) {
	for name, s := range scripts {
		if s.failed != nil {
			continue
		}
		c := parser.Parse(t, "{"+hi+s.body+"}")
		gather := c.Whole()
		got := gather(begin)
		for _, out := range s.items {
			got = append(got, gather(out)...)
		}
		events := eventsOf(parser.Parse(t, "{"+hi+s.body+`,"stream":true}`), s)
		_, last, _ := strings.Cut(events[strings.LastIndex(events, "\ndata: "):], `"response":`)
		last, _, _ = strings.Cut(last, `,"whence":`)
		if a, b := times.ReplaceAllString(string(got), "$1"), times.ReplaceAllString(last, "$1"); a != b {
			t.Errorf("%s: at once\n%s\nin pieces\n%s", name, a, b)
		}
	}
}

// TestAnAnswerFollowsFromItsMergedItems: an answer that is stored when it has ended is stored as merged
// items.
func TestAnAnswerFollowsFromItsMergedItems(t *testing.T) {
	custom := script{
		body: `,"tools":[{"type":"custom","name":"p"}]`,
		items: []*chatv1.GenerateResponse{
			calltest.Delta(&chatv1.Delta{ToolCalls: calls(&chatv1.ToolCallDelta{Id: "a", Name: "p", Arguments: `{"input":`})}),
			calltest.Delta(&chatv1.Delta{ToolCalls: calls(&chatv1.ToolCallDelta{Arguments: `"x"}`})}), calltest.Delta(&chatv1.Delta{Text: " "}),
			calltest.End(&llmv1.End{Finish: llmv1.Finish_FINISH_TOOL_CALLS}),
		},
	}
	for name, s := range map[string]script{
		"text": scripts["text"], "calls": scripts["reasoning-text-and-calls"], "logprobs": scripts["logprobs"], "nothing": scripts["nothing"], "a custom tool": custom,
		"space": {items: []*chatv1.GenerateResponse{calltest.Delta(&chatv1.Delta{Text: "\n"}), calltest.End(&llmv1.End{Finish: llmv1.Finish_FINISH_STOP})}},
	} {
		body := "{" + hi + s.body + `,"store":true}`
		c, again := parser.Parse(t, body), parser.Parse(t, body)
		gather, regather := c.Whole(), again.Whole()
		gather(begin)
		end := len(s.items) - 1
		for _, out := range s.items[:end] {
			gather(out)
		}
		began, merged := c.Store.Items()
		var want, got []byte
		for _, out := range merged {
			regather(out)
		}
		want, got = gather(s.items[end]), regather(s.items[end])
		if times.ReplaceAllString(string(got), "$1") != times.ReplaceAllString(string(want), "$1") || began.Unix() == 0 {
			t.Errorf("%s: merged\n%s\nwant\n%s", name, got, want)
		}
	}
}

func TestARestartedAnswerIsSentOnce(t *testing.T) {
	gather := parser.Parse(t, "{"+hi+"}").Whole()
	gather(begin)
	gather(calltest.Delta(&chatv1.Delta{Text: "lost", ToolCalls: calls(&chatv1.ToolCallDelta{Id: "a", Name: "f"})}))
	gather(&chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_Restarted{Restarted: &chatv1.Restarted{}}})
	gather(calltest.Delta(&chatv1.Delta{Text: "kept"}))
	var got struct {
		ID     string
		Output []struct{ Content []struct{ Text string } }
	}
	if err := json.Unmarshal(gather(calltest.End(&llmv1.End{})), &got); err != nil || got.ID != "resp_s" || len(got.Output) != 1 || got.Output[0].Content[0].Text != "kept" {
		t.Errorf("%+v: %v", got, err)
	}
}

// TestPiecesOfOneDeltaGoIntoTheirItems checks the kinds and texts of a stream's items.
func TestPiecesOfOneDeltaGoIntoTheirItems(t *testing.T) {
	first := &chatv1.Delta{ToolCalls: calls(&chatv1.ToolCallDelta{Id: "a", Name: "f", Arguments: `{"x":1`})}
	rest := &chatv1.ToolCallDelta{Arguments: "}"}
	second := &chatv1.ToolCallDelta{Index: 1, Id: "b", Name: "g", Arguments: "{}"}
	for name, test := range map[string]struct {
		deltas []*chatv1.Delta
		want   []string
	}{
		"arguments and text":      {[]*chatv1.Delta{first, {Text: "x", ToolCalls: calls(rest)}}, []string{`function_call {"x":1}`, "message x"}},
		"arguments and reasoning": {[]*chatv1.Delta{first, {Reasoning: "x", ToolCalls: calls(rest)}}, []string{`function_call {"x":1}`, "reasoning x"}},
		"all at once": {
			[]*chatv1.Delta{first, {Reasoning: "x", Text: "y", ToolCalls: calls(rest, second)}},
			[]string{`function_call {"x":1}`, "reasoning x", "message y", "function_call {}"},
		},
		"white space between calls": {[]*chatv1.Delta{first, {Text: "\n", ToolCalls: calls(rest, second)}, {Text: "\n"}}, []string{`function_call {"x":1}`, "function_call {}"}},
		"white space within a call": {[]*chatv1.Delta{first, {Text: "\n"}, {ToolCalls: calls(rest)}}, []string{`function_call {"x":1}`}},
		"white space before text":   {[]*chatv1.Delta{{Reasoning: "x"}, {Text: "\n"}, {Text: " "}, {Text: "x"}, {Text: " "}}, []string{"reasoning x", "message \n x "}},
		"white space alone":         {[]*chatv1.Delta{{Text: "\n"}, {Text: "\t"}}, []string{"message \n\t"}},
	} {
		var s script
		for _, d := range test.deltas {
			s.items = append(s.items, calltest.Delta(d))
		}
		s.items = append(s.items, calltest.End(&llmv1.End{Finish: llmv1.Finish_FINISH_TOOL_CALLS}))
		text := eventsOf(parser.Parse(t, "{"+hi+`,"stream":true}`), s)
		checkEvents(t, name, text)
		var last event
		if err := json.Unmarshal([]byte(text[strings.LastIndex(text, "\ndata: ")+len("\ndata: "):]), &last); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, it := range last.Response.Output {
			text, _ := it.Arguments.(string)
			for _, part := range it.Content {
				text += part.Text
			}
			got = append(got, it.Type+" "+text)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// TestALateRefusalIsAFailedResponse refuses a request whose status has been sent. Clients act on
// the failure of a response, and some of them ignore an event that is not about a response.
func TestALateRefusalIsAFailedResponse(t *testing.T) {
	c := parser.Parse(t, "{"+hi+`,"stream":true}`)
	c.Events()
	lines := sse.Encoder{Identity: true}
	c.Failure(&streamerr.Error{Reason: streamerr.Invalid, Path: streamerr.NewPath("chat-service"), Param: "input", Message: `"no"`, Code: "context_length_exceeded"}, "s", &lines)
	encoded, _ := lines.Take()
	text := string(encoded)
	checkEvents(t, "refused late", text)
	created, last, _ := strings.Cut(text, "event: response.failed\ndata: ")
	var got struct {
		Response struct {
			ID, Model, Status string
			Created           int64 `json:"created_at"`
			Error             struct{ Code, Message string }
		}
		Whence struct{ Reason, Origin, Param string }
	}
	if err := json.Unmarshal([]byte(last), &got); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	r, w := got.Response, got.Whence
	if r.ID != "resp_s" || r.Model != "m" || r.Status != "failed" || r.Created == 0 || r.Error.Code != "context_length_exceeded" || r.Error.Message != `Your input exceeds the context window of this model: "no"` {
		t.Errorf("the response is %+v", r)
	}
	if w.Reason != "invalid" || w.Origin != "chat-service" || w.Param != "input" {
		t.Errorf("the ending is %+v", w)
	}
	if !strings.HasPrefix(created, "event: response.created\n") || strings.Count(created, "event: ") != 2 || !strings.Contains(created, "event: error\n") || !strings.Contains(created, `"id":"resp_s"`) {
		t.Errorf("the events before the failure are %s", created)
	}
}

// TestAnAnswerIsCompleteBeforeTheLastEvent checks the mark after the last item: a client that
// leaves there has the whole answer.
func TestAnAnswerIsCompleteBeforeTheLastEvent(t *testing.T) {
	lines := sse.Encoder{Identity: true}
	write := parser.Parse(t, "{"+hi+`,"stream":true}`).Events()
	write(begin, &lines)
	write(calltest.Delta(&chatv1.Delta{Text: "He"}), &lines)
	if at := lines.AnsweredAt(); at != 0 {
		t.Errorf("the answer counts as complete at byte %d, before its end", at)
	}
	_, _ = lines.Take()
	write(calltest.End(&llmv1.End{Finish: llmv1.Finish_FINISH_STOP}), &lines)
	at := lines.AnsweredAt()
	encoded, _ := lines.Take()
	if before, after := string(encoded[:at]), string(encoded[at:]); !strings.HasSuffix(before, "}\n\n") || !strings.Contains(before, "response.output_item.done") || !strings.HasPrefix(after, "event: response.completed\n") {
		t.Errorf("complete with %q, followed by %q", before, after)
	}
}

func TestTheLastEventHasItsNameInTheRecord(t *testing.T) {
	for finish, want := range map[llmv1.Finish]string{
		llmv1.Finish_FINISH_STOP: "response.completed", llmv1.Finish_FINISH_LENGTH: "response.incomplete",
	} {
		c := parser.Parse(t, "{"+hi+`,"stream":true}`)
		eventsOf(c, script{items: []*chatv1.GenerateResponse{calltest.End(&llmv1.End{Finish: finish})}})
		if got := c.Done(); got != want {
			t.Errorf("%v: %s, want %s", finish, got, want)
		}
	}
}

func TestATokenIsEncodedWithoutAllocations(t *testing.T) {
	var lines sse.Encoder
	write := parser.Parse(t, "{"+hi+`,"stream":true}`).Events()
	write(begin, &lines)
	out := calltest.Delta(&chatv1.Delta{Text: " \"token\"\n"})
	if n := testing.AllocsPerRun(100, func() {
		write(out, &lines)
		_, _ = lines.Take()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestACallOfANamespaceIsNamedAsTheClientNamesIt(t *testing.T) {
	long := strings.Repeat("n", 60)
	c := parser.Parse(t, "{"+hi+`,"stream":true,"tools":[{"type":"namespace","name":"n","tools":[{"type":"function","name":"f"}]},
		{"type":"namespace","name":"`+long+`","tools":[{"type":"function","name":"search"}]}]}`)
	short := c.Request.GetTools()[1].GetName()
	if len(short) > 64 {
		t.Errorf("the model knows the function as %q", short)
	}
	text := eventsOf(c, script{items: []*chatv1.GenerateResponse{
		calltest.Delta(&chatv1.Delta{ToolCalls: calls(&chatv1.ToolCallDelta{Id: "a", Name: "n__f"}, &chatv1.ToolCallDelta{Index: 1, Id: "b", Name: "x__f"}, &chatv1.ToolCallDelta{Index: 2, Id: "c", Name: short})}),
		calltest.End(&llmv1.End{Finish: llmv1.Finish_FINISH_TOOL_CALLS}),
	}})
	checkEvents(t, "namespace", text)
	for _, want := range []string{`"call_id":"a","name":"f","namespace":"n"}`, `"call_id":"b","name":"x__f"}`, `"name":"f","arguments":"{}"`, `"call_id":"c","name":"search","namespace":"` + long + `"}`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	again := parser.Parse(t, `{"model":"m","input":[{"type":"function_call","call_id":"c","namespace":"`+long+`","name":"search","arguments":"{}"}]}`)
	if got := again.Request.GetMessages()[0].GetToolCalls()[0].GetName(); got != short {
		t.Errorf("the call is sent back as %q, and the tool is %q", got, short)
	}
}

// TestACallOfACustomToolIsText covers arguments that arrive in any pieces and in any form.
func TestACallOfACustomToolIsText(t *testing.T) {
	const text = "*** \"x\"\n\té\U0001f600\\/end"
	for arguments, want := range map[string]struct {
		text   string
		deltas bool // the text arrives in pieces
	}{
		`{"input":"*** \"x\"\n\té\ud83d\uDe00\\\/end"}`:                    {text, true},
		" {\n \"input\" : \"" + `*** \u0022x\"\n\t\u00e9😀\\/end", "y": 1}`: {text, true},
		`{"y":1,"input":"*** \"x\"\n\té😀\\/end"}`:                          {text, false},
		`*** Begin`:                 {"*** Begin", false},
		`{"input":7}`:               {`{"input":7}`, false},
		`{"input":"\ud83dx\ude00"}`: {"\ufffdx\ufffd", true},
		`{"input":""}`:              {"", false},
		``:                          {"", false},
	} {
		for _, size := range []int{1, 2, 7, 1000} {
			c := parser.Parse(t, "{"+hi+`,"stream":true,"tools":[{"type":"custom","name":"p"}]}`)
			s := script{items: []*chatv1.GenerateResponse{calltest.Delta(&chatv1.Delta{ToolCalls: calls(&chatv1.ToolCallDelta{Id: "a", Name: "p"})})}}
			for piece := range slices.Chunk([]rune(arguments), size) {
				s.items = append(s.items, calltest.Delta(&chatv1.Delta{ToolCalls: calls(&chatv1.ToolCallDelta{Arguments: string(piece)})}))
			}
			s.items = append(s.items, calltest.End(&llmv1.End{Finish: llmv1.Finish_FINISH_TOOL_CALLS}))
			events := eventsOf(c, s)
			var deltas []string
			var done struct {
				Input string
				Item  struct{ ID, Type, Input, Name, CallID string }
			}
			for block := range strings.SplitSeq(strings.TrimSuffix(events, "\n\n"), "\n\n") {
				name, data, _ := strings.Cut(block, "\ndata: ")
				var e event
				if err := json.Unmarshal([]byte(data), &e); err != nil {
					t.Fatal(block, err)
				}
				switch name {
				case "event: response.custom_tool_call_input.delta":
					deltas = append(deltas, e.Delta)
				case "event: response.custom_tool_call_input.done", "event: response.output_item.done":
					if err := json.Unmarshal([]byte(data), &done); err != nil {
						t.Fatal(block, err)
					}
				}
			}
			if strings.Join(deltas, "") != want.text || done.Input != want.text || done.Item.Input != want.text || done.Item.Type != "custom_tool_call" || done.Item.Name != "p" || done.Item.ID != "ctc_s_0" {
				t.Errorf("%s in pieces of %d: %q, %+v", arguments, size, deltas, done)
			}
			if want.deltas && size == 1 && len(deltas) < 2 {
				t.Errorf("%s: the text arrived in %d pieces", arguments, len(deltas))
			}
		}
	}
}

func TestEncryptedReasoningCanBeSentBackAlone(t *testing.T) {
	s := scripts["reasoning-text-and-calls"]
	gather := parser.Parse(t, "{"+hi+s.body+"}").Whole()
	gather(begin)
	var answer struct{ Output []map[string]any }
	for _, out := range s.items {
		if b := gather(out); b != nil {
			if err := json.Unmarshal(b, &answer); err != nil {
				t.Fatal(err)
			}
		}
	}
	delete(answer.Output[0], "content")
	input, err := json.Marshal(answer.Output)
	if err != nil {
		t.Fatal(err)
	}
	messages := parser.Parse(t, `{"model":"m","input":`+string(input)+`}`).Request.GetMessages()
	if len(messages) != 1 || messages[0].GetReasoning() != "Hm." || messages[0].GetContent() != "\nI look." || len(messages[0].GetToolCalls()) != 2 {
		t.Errorf("%v", messages)
	}
}
