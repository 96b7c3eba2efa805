package command

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/whence-dev/whence/internal/cli"
)

func TestModelsAreListedWithTheirTemplates(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"data":[
			{"id":"a","context_length":1024,"workers":{"healthy":1,"known":2},
				"template":{"system":["first"],"developer":["first"],"calls":true,"images":["user"],"efforts":["low","high"],"switches":["enable_thinking"]}},
			{"id":"b\u001b","workers":{},"template":{"system":[],"calls":false,"efforts":[]}},
			{"id":"c","template":{"system":["first","leading","later"],"calls":false}}]}`))
	}))
	defer s.Close()
	defer http.DefaultClient.CloseIdleConnections()
	for _, args := range [][]string{nil, {"--json"}} {
		var out, errs bytes.Buffer
		if status := cli.Execute(t.Context(), Models(), append(args, "--url", s.URL), &out, &errs); status != 0 {
			t.Fatal(errs.String())
		}
		if args != nil {
			if !strings.Contains(out.String(), `"efforts": [`) || !strings.HasPrefix(out.String(), "[\n") {
				t.Error(out.String())
			}
			continue
		}
		var got []string
		for line := range strings.Lines(out.String()) {
			got = append(got, strings.Join(strings.Fields(line), " "))
		}
		want := []string{
			"MODEL CONTEXT WORKERS SYSTEM DEVELOPER CALLS IMAGES EFFORTS THINKING OFF",
			"a 1024 1 of 2 first first yes user low, high enable_thinking", "b 0 0 of 0 as user as system as text - none -", "c 0 0 of 0 first, leading, later as system as text - any -",
		}
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

func TestFindingsAboutATemplateAreShown(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.EscapedPath() != "/v1/models/org%2Fa" {
			t.Errorf("%s is asked for", r.URL.EscapedPath())
		}
		_, _ = w.Write([]byte(`{"id":"org/a","template":{"system":["first"],"calls":true,"efforts":["low"],"tools":true,"text_arguments":true,"ids":"nine","reasoning":"thinking",` +
			`"one_call":true,"text":{"earlier":"turn","reasoned":"reasoning","earlier_reasoned":"user"},"written_call":"<call>\u001b","tool_format":"hermes","reasoning_tags":["<t>","</t>"]}}`))
	}))
	defer s.Close()
	defer http.DefaultClient.CloseIdleConnections()
	var out, errs bytes.Buffer
	if status := cli.Execute(t.Context(), Models(), []string{"show", "org/a", "--url", s.URL}, &out, &errs); status != 0 {
		t.Fatal(errs.String())
	}
	var got []string
	for line := range strings.Lines(out.String()) {
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	want := []string{
		"model: org/a", "system texts are turns: first", "developer texts are turns: as the system's", "offered tools: described by the template",
		"calls and results: in the template's form", "arguments: as text", "content without a text: an empty text", "ids: nine letters and digits", "calls in a turn: one",
		"text beside calls: stays", "before an answer: a turn before", "with reasoning: joins the reasoning", "with reasoning, before an answer: a turn before, and an empty turn of the user",
		"reasoning: in the field thinking", "efforts: low", "thinking off: not possible", "images: nowhere", "format of calls: hermes", "tags of reasoning: <t>…</t>", `a call: "<call>\x1b"`, "a turn with reasoning: not written",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if status := cli.Execute(t.Context(), Models(), []string{"show"}, &out, &errs); status != 2 {
		t.Errorf("without a model: status %d", status)
	}
}
