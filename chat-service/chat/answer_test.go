package chat_test

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/whence-dev/whence/chat-service/chat"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/internal/answer"
	"github.com/whence-dev/whence/internal/whencetiny"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// modelWith returns whence-tiny with another chat template and additional tokens.
func modelWith(t testing.TB, template string, special bool, tokens ...string) *chat.Model {
	t.Helper()
	dir := fstest.MapFS{"chat_template.jinja": {Data: []byte(template)}}
	for _, name := range []string{"config.json", "tokenizer_config.json", "tokenizer.json"} {
		b, err := fs.ReadFile(whencetiny.FS(), name)
		if err != nil {
			t.Fatal(err)
		}
		if name == "tokenizer.json" {
			added := ""
			for i, token := range tokens {
				added += fmt.Sprintf(`,{"id":%d,"content":%q,"single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":%t}`, 1536+i, token, special)
			}
			b = []byte(strings.Replace(string(b), `],"normalizer"`, added+`],"normalizer"`, 1))
		}
		dir[name] = &fstest.MapFile{Data: b}
	}
	m, err := chat.Load(dir, whencetiny.Name, "")
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// readWhole ranges over a stream and joins its deltas.
func readWhole(t testing.TB, e engine, req *chatv1.ChatRequest) (*answer.Answer, *llmv1.End, error) {
	t.Helper()
	ctx, ctl := stream.WithControl(t.Context(), time.Second)
	defer ctl.Release()
	var a answer.Answer
	var end *llmv1.End
	tokens := uint32(0)
	for out, err := range e(ctx, req) {
		if err != nil {
			return &a, nil, err
		}
		if d := out.GetDelta(); d != nil {
			if d.GetText() == "" && d.GetReasoning() == "" && len(d.GetToolCalls()) == 0 {
				t.Error("an empty delta")
			}
			a.Add(d)
			tokens += d.GetTokens()
		}
		end = out.GetEnd()
	}
	if tokens > end.GetUsage().GetCompletionTokens() {
		t.Errorf("deltas of %d tokens, usage %v", tokens, end.GetUsage())
	}
	return &a, end, nil
}

const twoCalls = "Let me see.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo 👩‍👩‍👧\"}}\n</tool_call>\n" +
	"<tool_call>\n{\"name\": \"get_time\", \"arguments\": {}}\n</tool_call>"

func tooled(content string) *chatv1.ChatRequest {
	req := user(content)
	req.Tools = []*chatv1.Tool{
		{Name: "get_weather", Parameters: `{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}`}, {Name: "get_time"},
	}
	return req
}

func TestCallsAreSeparatedFromTextForAnyTokenBoundaries(t *testing.T) {
	m := model(t)
	r := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		p := &parrot{ids: m.Tokenizer.Encode(twoCalls, false), step: func() int { return 1 + r.IntN(5) }}
		p.finish = llmv1.Finish_FINISH_STOP
		a, end, err := readWhole(t, pipeline(m, p.generate), tooled("x"))
		if err != nil {
			t.Fatal(err)
		}
		calls := a.Calls()
		if a.Text() != "Let me see." || len(calls) != 2 || calls[0].GetArguments() != `{"city": "Oslo 👩‍👩‍👧"}` || calls[1].GetName() != "get_time" ||
			calls[0].GetId() == calls[1].GetId() || end.GetFinish() != llmv1.Finish_FINISH_TOOL_CALLS {
			t.Fatalf("%q %v %v", a.Text(), calls, end)
		}
	}
}

func TestWithoutToolsCallsAreText(t *testing.T) {
	m := model(t)
	none := tooled("x")
	none.ToolChoice = &chatv1.ToolChoice{Mode: chatv1.ToolMode_TOOL_MODE_NONE}
	for name, req := range map[string]*chatv1.ChatRequest{"no tools": user("x"), "none is to be called": none} {
		p := &parrot{ids: m.Tokenizer.Encode(twoCalls, false)}
		a, end, err := readWhole(t, pipeline(m, p.generate), req)
		if err != nil || a.Text() != twoCalls || len(a.Calls()) != 0 || end.GetFinish() != llmv1.Finish_FINISH_LENGTH {
			t.Errorf("%s: %q %v %v", name, a.Text(), end, err)
		}
		if prompt := m.Tokenizer.Decode(p.asked.Load().GetPrompt(), false); strings.Contains(prompt, "get_weather") {
			t.Errorf("%s: the prompt describes tools: %s", name, prompt)
		}
	}
}

// TestFirstCallEndsAnAnswerWithoutParallelCalls checks that the answer ends with the token that
// completes the call's arguments, whatever text follows.
func TestFirstCallEndsAnAnswerWithoutParallelCalls(t *testing.T) {
	m := model(t)
	call, _, _ := strings.Cut(twoCalls, "\n</tool_call>")
	first := len(m.Tokenizer.Encode(call, false))
	for name, behind := range map[string]string{
		"another call": twoCalls[len(call):], "text": "\n</tool_call>\nNow I tell you what the weather is, and was, and will be.", "no end of the call": " and so on",
	} {
		for _, step := range []int{1, 4} {
			p := &parrot{ids: m.Tokenizer.Encode(call+behind, false), forever: true, step: func() int { return step }}
			req := tooled("x")
			req.ParallelToolCalls = proto.Bool(false)
			a, end, err := readWhole(t, pipeline(m, p.generate), req)
			if err != nil || a.Text() != "Let me see." || len(a.Calls()) != 1 || a.Calls()[0].GetArguments() != `{"city": "Oslo 👩‍👩‍👧"}` ||
				end.GetFinish() != llmv1.Finish_FINISH_TOOL_CALLS {
				t.Errorf("%s: %q %v %v %v", name, a.Text(), a.Calls(), end, err)
			}
			u, sent := end.GetUsage(), int(p.sent.Load())
			if used := int(u.GetCompletionTokens()); used > first || used < first-2 || sent >= used+step || p.live.Load() != 0 {
				t.Errorf("%s: %d tokens are used of %d that were sent in items of %d; the call has %d", name, used, sent, step, first)
			}
			if u.GetPromptTokens() == 0 || u.GetCachedTokens() != 5 {
				t.Errorf("%s: %v", name, u)
			}
		}
	}
}

func TestIncompleteCallIsDeliveredWhenTheStreamFails(t *testing.T) {
	m := model(t)
	p := &parrot{ids: m.Tokenizer.Encode("Hm. <tool_call>\n{\"name\": \"get_we", false), fail: streamerr.New(streamerr.PeerLost, "gone")}
	a, _, err := readWhole(t, pipeline(m, p.generate), tooled("x"))
	if err == nil || a.Text() != "Hm. <tool_call>\n{\"name\": \"get_we" {
		t.Errorf("%q %v", a.Text(), err)
	}
}

const thinking = "{{ messages[0].content }}{% if enable_thinking is not defined or enable_thinking %}<think>\n{% endif %}{# </think> #}"

func TestReasoningIsSeparatedAndCounted(t *testing.T) {
	m := modelWith(t, thinking, false, "<think>", "</think>")
	const says = "is it\n</think>\n\nyes"
	ids := m.Tokenizer.Encode(says, false)
	whole := user("x")
	whole.SeparateReasoning = proto.Bool(false)
	quiet := user("x")
	quiet.TemplateVariables = `{"enable_thinking":false}`
	for name, c := range map[string]struct {
		req           *chatv1.ChatRequest
		thought, text string
		counted       int // -1 if reasoning is not counted
	}{
		"as it is":      {user("x"), "is it", "yes", len(m.Tokenizer.Encode("is it\n</think>", false))},
		"not separated": {whole, "", says, -1},
		"switched off":  {quiet, "", says, 0},
	} {
		p := &parrot{ids: ids, step: func() int { return 3 }}
		a, end, err := readWhole(t, pipeline(m, p.generate), c.req)
		if err != nil || a.Reasoning() != c.thought || a.Text() != c.text {
			t.Errorf("%s: %q, %q, %v", name, a.Reasoning(), a.Text(), err)
		}
		if counted := end.GetUsage().ReasoningTokens; (counted == nil) != (c.counted < 0) || counted != nil && int(*counted) != c.counted {
			t.Errorf("%s: %v, want %d", name, end.GetUsage(), c.counted)
		}
	}
}

func TestSpecialTokensReachOnlyTheParser(t *testing.T) {
	const template = `{{ tools }}{{ messages[0].content }} ipython "parameters": `
	m := modelWith(t, template, true, "<|python_tag|>")
	ids := m.Tokenizer.Encode("Hm.<|python_tag|>{\"name\": \"get_time\", \"parameters\": {\"a\": 1}}", false)
	p := &parrot{ids: ids}
	a, _, err := readWhole(t, pipeline(m, p.generate), tooled("x"))
	if err != nil || a.Text() != "Hm." || len(a.Calls()) != 1 || a.Calls()[0].GetArguments() != `{"a": 1}` {
		t.Errorf("%q %v %v", a.Text(), a.Calls(), err)
	}
	p = &parrot{ids: m.Tokenizer.Encode("<|python_tag|>print(1)", false)}
	if a, _, err := readWhole(t, pipeline(m, p.generate), tooled("x")); err != nil || a.Text() != "print(1)" {
		t.Errorf("%q %v", a.Text(), err)
	}
}

func TestRequiredCallsBecomeAGuide(t *testing.T) {
	m := model(t)
	choice := func(name string) *chatv1.ToolChoice {
		return &chatv1.ToolChoice{Mode: chatv1.ToolMode_TOOL_MODE_REQUIRED, Name: name}
	}
	schema := &llmv1.Sampling{Guide: &llmv1.Guide{Forms: []*llmv1.GuideForm{{Schema: `{"type":"object"}`}}}}
	for name, c := range map[string]struct {
		change func(*chatv1.ChatRequest)
		want   []string // the text before each value
	}{
		"any":                {func(r *chatv1.ChatRequest) { r.ToolChoice = choice("") }, []string{"<tool_call>\n{\"name\": \"get_weather\", \"arguments\": ", "<tool_call>\n{\"name\": \"get_time\", \"arguments\": "}},
		"one":                {func(r *chatv1.ChatRequest) { r.ToolChoice = choice("get_time") }, []string{"<tool_call>\n{\"name\": \"get_time\", \"arguments\": "}},
		"a schema":           {func(r *chatv1.ChatRequest) { r.Sampling, r.Tools = schema, nil }, []string{""}},
		"a schema, or calls": {func(r *chatv1.ChatRequest) { r.Sampling = schema }, []string{"", "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": ", "<tool_call>\n{\"name\": \"get_time\", \"arguments\": "}},
		"a schema, and one":  {func(r *chatv1.ChatRequest) { r.Sampling, r.ToolChoice = schema, choice("get_time") }, []string{"<tool_call>\n{\"name\": \"get_time\", \"arguments\": "}},
		"nothing":            {func(*chatv1.ChatRequest) {}, nil},
	} {
		req := tooled("x")
		c.change(req)
		before := proto.CloneOf(req)
		p := &parrot{ids: []uint32{1}}
		if _, _, err := readWhole(t, pipeline(m, p.generate), req); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var got []string
		for _, form := range p.asked.Load().GetSampling().GetGuide().GetForms() {
			got = append(got, form.GetBefore())
			if form.GetSchema() == "" {
				t.Errorf("%s: no schema", name)
			}
		}
		if strings.Join(got, "|") != strings.Join(c.want, "|") || len(got) != len(c.want) {
			t.Errorf("%s: %q", name, got)
		}
		if !proto.Equal(req, before) {
			t.Errorf("%s: the caller's request was changed", name)
		}
	}
}

func TestGuidedAnswerBeginsAfterTheReasoning(t *testing.T) {
	m := modelWith(t, thinking, false, "<think>", "</think>")
	req := user("x")
	req.Sampling = &llmv1.Sampling{Guide: &llmv1.Guide{Forms: []*llmv1.GuideForm{{Schema: "{}"}}}}
	p := &parrot{ids: []uint32{1}}
	if _, _, err := readWhole(t, pipeline(m, p.generate), req); err != nil {
		t.Fatal(err)
	}
	if got := p.asked.Load().GetSampling().GetGuide(); got.GetFreeUntil() != "</think>" || got.GetForms()[0].GetBefore() != "\n\n" {
		t.Errorf("%q", got)
	}
}

func TestModelMayReasonBeforeAGuidedAnswer(t *testing.T) {
	for end, want := range map[string]*llmv1.Guide{
		"":                             {FreeFrom: "<think>", FreeUntil: "</think>", FreeGap: "\n\n", Forms: []*llmv1.GuideForm{{Schema: "{}"}}},
		"<think>\n\n</think>\n\n":      {Forms: []*llmv1.GuideForm{{Schema: "{}"}}},
		"<think>{# the gap #}\n":       {FreeUntil: "</think>", Forms: []*llmv1.GuideForm{{Before: "\n\n", Schema: "{}"}}},
		"{# no reasoning but tags #}x": {FreeFrom: "<think>", FreeUntil: "</think>", FreeGap: "\n\n", Forms: []*llmv1.GuideForm{{Schema: "{}"}}},
	} {
		m := modelWith(t, calling(end), false, "<think>", "</think>")
		req := user("x")
		req.Sampling = &llmv1.Sampling{Guide: &llmv1.Guide{Forms: []*llmv1.GuideForm{{Schema: "{}"}}}}
		p := &parrot{ids: []uint32{1}}
		if _, _, err := readWhole(t, pipeline(m, p.generate), req); err != nil {
			t.Fatal(err)
		}
		if got := p.asked.Load().GetSampling().GetGuide(); !proto.Equal(got, want) {
			t.Errorf("%q: %v, want %v", end, got, want)
		}
	}
}

// A model with channels reasons before the channel of its answer, and before a call.
func TestGuideOfChannels(t *testing.T) {
	const call = " to=functions.get_time<|channel|>commentary json<|message|>"
	m := modelWith(t, "{{ tools }}{{ messages[0].content }}<|channel|>", false)
	form := &llmv1.Sampling{Guide: &llmv1.Guide{Forms: []*llmv1.GuideForm{{Schema: "{}"}}}}
	forced := tooled("x")
	forced.ToolChoice, forced.Sampling = &chatv1.ToolChoice{Mode: chatv1.ToolMode_TOOL_MODE_REQUIRED, Name: "get_time"}, form
	offered, alone := tooled("x"), user("x")
	offered.Sampling, alone.Sampling = form, form
	for name, c := range map[string]struct {
		req    *chatv1.ChatRequest
		before []string
	}{
		"a form":           {alone, []string{"<|channel|>final<|message|>"}},
		"a form and tools": {offered, []string{"<|channel|>final<|message|>", " to=functions.get_weather<|channel|>commentary json<|message|>", call}},
		"a call":           {forced, []string{call}},
	} {
		p := &parrot{ids: []uint32{1}}
		if _, _, err := readWhole(t, pipeline(m, p.generate), c.req); err != nil {
			t.Fatal(name, err)
		}
		got := p.asked.Load().GetSampling().GetGuide()
		if got.GetFreeFrom() != "<|channel|>analysis<|message|>" || got.GetFreeUntil() != "<|end|>" || got.GetFreeGap() != "<|start|>assistant" || len(got.GetForms()) != len(c.before) {
			t.Fatalf("%s: %v", name, got)
		}
		for i, form := range got.GetForms() {
			if form.GetBefore() != c.before[i] || form.GetSchema() == "" || form.GetAfter() != "" {
				t.Errorf("%s: %v", name, form)
			}
		}
	}
	for _, thought := range []string{"", "Hm."} {
		says := call + `{"a":1}`
		if thought != "" {
			says = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant" + says
		}
		p := &parrot{ids: m.Tokenizer.Encode(says, false)}
		a, _, err := readWhole(t, pipeline(m, p.generate), forced)
		if err != nil || len(a.Calls()) != 1 || a.Calls()[0].GetArguments() != `{"a":1}` || a.Text() != "" || a.Reasoning() != thought {
			t.Errorf("the forced call is not read: %q %v %v", a.Text(), a.Calls(), err)
		}
	}
}

// TestUnreadCallsAreInTheStory checks that calls in the form of another family, and special tokens that
// no parser knows, stand in the stream's record.
func TestUnreadCallsAreInTheStory(t *testing.T) {
	m := modelWith(t, "{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}", true, "<|odd|>", "<|last|>")
	for name, c := range map[string]struct {
		req  *chatv1.ChatRequest
		says string
		want []string
	}{
		"another family":  {tooled("x"), "Hm. [TOOL_CALLS]get_time{}", []string{"[TOOL_CALLS]"}},
		"a special token": {tooled("x"), "a<|odd|>b<|odd|>c<|last|>", []string{"<|odd|>"}},
		"a call":          {tooled("x"), "<tool_call>{\"name\": \"get_time\", \"arguments\": {}}</tool_call>", nil},
		"no tools":        {user("x"), "Hm. [TOOL_CALLS]get_time{}", nil},
	} {
		r := (&ledger.Ledger{}).Open("s", "chat-service", "client")
		p := &parrot{ids: m.Tokenizer.Encode(c.says, false)}
		p.finish = llmv1.Finish_FINISH_STOP
		ctx, ctl := stream.WithControl(ledger.With(t.Context(), r), time.Minute)
		for _, err := range pipeline(m, p.generate)(ctx, c.req) {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		ctl.Release()
		if got := r.Proto().GetUnread(); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestModelIsDescribed(t *testing.T) {
	silent := modelWith(t, "{{ messages[0].content }}", false)
	off := model(t)
	if err := off.UseToolFormat("none"); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		model        *chat.Model
		format, tags string
		lacks        bool
	}{
		"tags":     {modelWith(t, calling("[THINK]"), false), "hermes", "[THINK] [/THINK]", false},
		"channels": {modelWith(t, "{{ tools }}{{ messages[0].content }}<|channel|>", false), "harmony", "<|channel|>analysis<|message|> <|end|>", false},
		"no tools": {silent, "", "<think> </think>", true},
		"none":     {off, "", "<think> </think>", true},
		"nothing":  {&chat.Model{}, "", "", true},
	} {
		got := c.model.Template()
		if got.GetToolFormat() != c.format || strings.Join(got.GetReasoningTags(), " ") != c.tags || (got.GetToolProblem() != "") != c.lacks {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestUnsupportedToolsAreRefusedByName(t *testing.T) {
	m := model(t)
	without := model(t)
	if err := without.UseToolFormat("none"); err != nil {
		t.Fatal(err)
	}
	silent := modelWith(t, "{{ messages[0].content }}", false)
	unknown := modelWith(t, "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls|default([]) %}(({{ c.function.name }} {{ c.function.arguments|tojson }})){% endfor %}{% endfor %}{{ tools }}", false)
	required := tooled("x")
	required.ToolChoice = &chatv1.ToolChoice{Mode: chatv1.ToolMode_TOOL_MODE_REQUIRED}
	nobody := proto.CloneOf(required)
	nobody.ToolChoice.Name = "nobody"
	noTools := proto.CloneOf(required)
	noTools.Tools = nil
	for name, c := range map[string]struct {
		model *chat.Model
		req   *chatv1.ChatRequest
		param string
		says  string
	}{
		"no format":          {without, tooled("x"), "tools", "--tool-format is none"},
		"a template without": {silent, tooled("x"), "tools", "is unknown"},
		"a known family":     {modelWith(t, "{{ tools }}{{ messages[0].content }} ✿FUNCTION✿", false), tooled("x"), "tools", "qwen-agent"},
		"an unknown form":    {unknown, tooled("x"), "tools", "((get_weather {"},
		"an unknown tool":    {m, nobody, "tool_choice", "nobody"},
		"no tools":           {m, noTools, "tool_choice", "no tools"},
	} {
		p := &parrot{ids: []uint32{1}}
		_, _, err := readWhole(t, pipeline(c.model, p.generate), c.req)
		if e := streamerr.As(err); err == nil || e.Reason != streamerr.Invalid || e.Param != c.param || !strings.Contains(e.Message, c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := m.UseToolFormat("smoke"); err == nil || !strings.Contains(err.Error(), "hermes") {
		t.Error(err)
	}
}
