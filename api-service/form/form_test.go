package form_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/whence-dev/whence/api-service/anthropic"
	"github.com/whence-dev/whence/api-service/edge/sse"
	"github.com/whence-dev/whence/api-service/form"
	"github.com/whence-dev/whence/api-service/ollama"
	"github.com/whence-dev/whence/api-service/openai"
	"github.com/whence-dev/whence/api-service/responses"
	"github.com/whence-dev/whence/api-service/sglang"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func TestRoutesHaveTheFormOfTheirAPI(t *testing.T) {
	for path, want := range map[string]any{
		"/v1/messages": &anthropic.Form, "/v1/messages/count_tokens": &anthropic.Form, "/v1/messages/": &anthropic.Form,
		"/v1/responses": &responses.Form, "/v1/responses/input_tokens": &responses.Form,
		"/generate": &sglang.Form, "/abort_request": &sglang.Form,
		"/api": &ollama.Form, "/api/chat": &ollama.Form, "/api/blobs/x": &ollama.Form, "/apis": &openai.Form,
		"/v1/messagesx": &openai.Form, "/generate_more": &openai.Form, "/v1/chat/completions": &openai.Form, "": &openai.Form,
	} {
		if got := form.Of(path); any(got) != want {
			t.Errorf("%q has the form %p, want %p", path, got, want)
		}
	}
}

func TestSGLangsErrorsHaveTheEndingBeside(t *testing.T) {
	e := &streamerr.Error{Reason: streamerr.Invalid, Path: streamerr.NewPath("chat-service", "api-service"), Message: "no", Param: "text", Code: streamerr.CodeContextLength}
	const want = `{"error":{"message":"no","whence":{"reason":"invalid","origin":"chat-service","path":["chat-service","api-service"],"param":"text","code":"context_length_exceeded"}}}`
	if status, body := sglang.Form.Refusal(http.StatusBadRequest, e, "s"); status != http.StatusBadRequest || string(body) != want {
		t.Errorf("%d %s", status, body)
	}
	lines := sse.Encoder{Identity: true}
	sglang.Form.Failure(e, "s", &lines)
	if got, _ := lines.Take(); string(got) != "data: "+want+"\n\n" {
		t.Errorf("%s", got)
	}
}

// document returns the lines of docs/reference/errors.md between two comments, without the head of the table.
func document(t *testing.T, name string) []string {
	t.Helper()
	doc, err := os.ReadFile("../../docs/reference/errors.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(doc), "<!-- "+name+" -->\n")
	table, _, ok := strings.Cut(rest, "\n<!-- end of "+name+" -->")
	rows := strings.Split(table, "\n")
	if !ok || len(rows) < 3 {
		t.Fatalf("docs/reference/errors.md has no table between <!-- %s --> and <!-- end of %s -->", name, name)
	}
	return rows[2:]
}

// TestTheTableOfErrorsIsWhatRoutesAnswer compares all columns of the table except the meaning.
func TestTheTableOfErrorsIsWhatRoutesAnswer(t *testing.T) {
	var want []string
	for _, n := range slices.Sorted(maps.Keys(streamv1.Reason_name)) {
		reason := streamerr.Reason(n)
		if reason == streamerr.Unspecified || reason == streamerr.Completed {
			continue
		}
		word := "`" + reason.String() + "`"
		want = append(want, row(t, word, &streamerr.Error{Reason: reason}))
		if reason == streamerr.Invalid {
			want = append(want, row(t, word+", with a `param`", streamerr.InvalidParam("model", "no")))
		}
	}
	got := document(t, "errors")
	for i, line := range got {
		got[i] = line[:strings.LastIndex(strings.TrimSuffix(line, "|"), "|")+1]
	}
	if !slices.Equal(got, want) {
		t.Errorf("docs/reference/errors.md has\n%s\nand routes answer\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// row returns the row of an error, without the meaning.
func row(t *testing.T, name string, e *streamerr.Error) string {
	t.Helper()
	var ours, theirs struct {
		Error struct {
			Type string
			Code *string
		}
	}
	status, body := openai.Form.Refusal(e.Reason.HTTPStatus(), e, "s")
	if err := json.Unmarshal(body, &ours); err != nil {
		t.Fatal(err)
	}
	code := "null"
	if ours.Error.Code != nil {
		code = "`" + *ours.Error.Code + "`"
	}
	other, body := anthropic.Form.Refusal(e.Reason.HTTPStatus(), e, "s")
	if err := json.Unmarshal(body, &theirs); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("| %s | %s | `%s` | %s | %s `%s` |", name, shown(status), ours.Error.Type, code, shown(other), theirs.Error.Type)
}

// shown returns a status that a client can get, or a dash.
func shown(status int) string {
	if status == streamerr.StatusClientClosed {
		return "–"
	}
	return fmt.Sprint(status)
}

// TestTheTableOfCodesIsComplete compares the table with the constants of package streamerr.
func TestTheTableOfCodesIsComplete(t *testing.T) {
	source, err := os.ReadFile("../../pkg/streamerr/code.go")
	if err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for _, m := range regexp.MustCompile(`(?m)^\tCode\w+ += "(\w+)"$`).FindAllStringSubmatch(string(source), -1) {
		want = append(want, m[1])
	}
	for _, line := range document(t, "codes") {
		for _, m := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(strings.Split(line, "|")[1], -1) {
			got = append(got, m[1])
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if len(want) == 0 || !slices.Equal(got, want) {
		t.Errorf("docs/reference/errors.md has the codes %v, and the code has %v", got, want)
	}
}
