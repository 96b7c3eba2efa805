package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/whence-dev/whence/lab"
)

// A habit is the requests that a client sends with its default settings, in a file of the directory
// habits. Texts of the client's own and what identifies a user are replaced.
type habit struct {
	file            string
	Client, Version string
	// Recorded is true if a proxy recorded the turns without faults; those with faults are made from
	// them. The other files are written from the client's code and documents.
	Recorded bool
	Headers  map[string]string // of all requests
	Requests []habitRequest
}

// A habitRequest is one request of a habit.
type habitRequest struct {
	Name, Method, Path string
	Headers            map[string]string
	// Body may have texts like "$1.id": the member id of the answer to the first request.
	Body json.RawMessage
	// Ignored has the names of the header whence-ignored.
	Ignored []string
	// Refused is the code of a refusal: the client handles it, or the answer would mean something else.
	Refused string
	// Sees says that the user asks about an image, which a model without eyes refuses.
	Sees bool
}

// habits returns all habits, and the reason of each name in their requests' Ignored.
func habits(t *testing.T) (all []habit, reasons map[string]string) {
	t.Helper()
	files, err := filepath.Glob("habits/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Base(file) == "reasons.json" {
			err = json.Unmarshal(b, &reasons)
		} else {
			h := habit{file: strings.TrimSuffix(filepath.Base(file), ".json")}
			err = json.Unmarshal(b, &h)
			for i := range h.Requests {
				headers := map[string]string{}
				maps.Copy(headers, h.Headers)
				maps.Copy(headers, h.Requests[i].Headers)
				h.Requests[i].Headers = headers
			}
			all = append(all, h)
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
	return all, reasons
}

// TestHabitsTable: clients get what they send by default answered, what is left out of their requests is
// named in a header, and the table of clients says why.
func TestHabitsTable(t *testing.T) {
	t.Parallel()
	all, reasons := habits(t)
	keepTable(t, "../bench/clients.md", "<!-- habits -->\n", "<!-- end -->", habitsTable(t, all, reasons))
	wide := []string{"--model", wideModel(t, 1<<18), "--model-name", model}
	sees := []string{"--model", seeingDir(t), "--model-name", model}
	texts := run(t, allInOne, flags{worker: append([]string{"--engine", "sim", "--sim-speed", "1000", "--sim-answer", "8"}, wide...)})
	images := run(t, allInOne, flags{worker: append([]string{"--engine", "openai", "--upstream", newChattingVLLM(t, "vllm").URL}, sees...)})
	computed := run(t, allInOne, flags{})
	for _, h := range all {
		t.Run(h.file, func(t *testing.T) {
			t.Parallel()
			var answers []map[string]any
			for _, r := range h.Requests {
				to := texts
				switch {
				case r.Sees:
					to = images
				case r.Path == "/v1/embeddings", r.Path == "/api/embed", bytes.Contains(r.Body, []byte(`"echo": true`)):
					to = computed // the simulator has neither vectors nor log-probabilities
				}
				answer := r.play(t, to, answers)
				// A sampled answer may be empty, and then has no item for a later request to refer to.
				for output, ok := answer["output"].([]any); ok && len(output) == 0; output, ok = answer["output"].([]any) {
					answer = r.play(t, to, answers)
				}
				answers = append(answers, answer)
			}
		})
	}
}

// habitsTable returns the tables of clients and of names that requests are read without.
func habitsTable(t *testing.T, all []habit, reasons map[string]string) string {
	t.Helper()
	var clients, names strings.Builder
	clients.WriteString("\n| client | version | routes | left out |\n|---|---|---|---|\n")
	named := map[string]bool{}
	slices.SortStableFunc(all, func(a, b habit) int { return strings.Compare(strings.ToLower(a.Client), strings.ToLower(b.Client)) })
	for _, h := range all {
		routes, ignored := map[string]bool{}, map[string]bool{}
		for _, r := range h.Requests {
			path, _, _ := strings.Cut(r.Path, "?")
			routes["`"+path+"`"] = true
			for _, name := range r.Ignored {
				ignored["`"+name+"`"], named[name] = true, true
			}
		}
		client := h.Client
		if !h.Recorded {
			client += " ¹"
		}
		fmt.Fprintf(&clients, "| %s | %s | %s | %s |\n", client, h.Version, sorted(routes), sorted(ignored))
	}
	names.WriteString("\n| left out | why |\n|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(reasons)) {
		if !named[name] {
			t.Errorf("no request is read without %s", name)
		}
		fmt.Fprintf(&names, "| `%s` | %s |\n", name, reasons[name])
		delete(named, name)
	}
	for name := range named {
		t.Errorf("reasons.json has no reason for %s", name)
	}
	return clients.String() + names.String()
}

// sorted returns the keys of a set, in order.
func sorted(set map[string]bool) string {
	return strings.Join(slices.Sorted(maps.Keys(set)), ", ")
}

// earlier matches a text that stands for a member of an earlier answer.
var earlier = regexp.MustCompile(`"\$(\d+)\.([\w.]+)"`)

// play sends a request, and checks its answer. It returns the answer's JSON, of a stream that of the last
// event.
func (r *habitRequest) play(t *testing.T, w *whence, answers []map[string]any) (answer map[string]any) {
	t.Helper()
	body := earlier.ReplaceAllFunc(r.Body, func(text []byte) []byte {
		m := earlier.FindSubmatch(text)
		n, err := strconv.Atoi(string(m[1]))
		if err != nil || n < 1 || n > len(answers) {
			t.Fatalf("%s: %s", r.Name, text)
		}
		value, err := json.Marshal(member(answers[n-1], strings.Split(string(m[2]), ".")))
		if err != nil || string(value) == "null" {
			t.Fatalf("%s: %s is %s, %v", r.Name, text, value, err)
		}
		return value
	})
	headers := make([]string, 0, 2*len(r.Headers))
	for name, value := range r.Headers {
		headers = append(headers, name, value)
	}
	method := r.Method
	if method == "" {
		method = http.MethodPost
	}
	got := replyTo(t)(w.do(t.Context(), method, w.url(r.Path), string(body), headers...))
	if r.Refused != "" {
		if got.status != http.StatusBadRequest || !strings.Contains(string(got.body), `"`+r.Refused+`"`) {
			t.Errorf("%s: status %d, and no code %s: %s", r.Name, got.status, r.Refused, got.body)
		}
		return nil
	}
	if got.status/100 != 2 {
		t.Errorf("%s: status %d: %s", r.Name, got.status, got.body)
		return nil
	}
	header := got.header.Get("whence-ignored")
	want, ignored := slices.Sorted(slices.Values(r.Ignored)), strings.FieldsFunc(header, func(c rune) bool { return strings.ContainsRune(", ", c) })
	all := len(ignored)
	ignored = slices.DeleteFunc(ignored, ofImage.MatchString)
	if !slices.Equal(ignored, want) || (all > len(ignored)) != (bytes.Contains(r.Body, []byte(image)) && !r.Sees) {
		t.Errorf("%s: whence-ignored is %q, not %q and the images that the model does not see", r.Name, header, want)
	}
	return r.ending(t, got)
}

// ofImage matches the field of an image.
var ofImage = regexp.MustCompile(`\.(image_url|image_url\.url|source\.data|images\[\])$`)

// ending checks that an answer has the end of its API, and returns the answer's JSON, of a stream that of
// the last event.
func (r *habitRequest) ending(t *testing.T, got reply) (answer map[string]any) {
	t.Helper()
	kind, _, _ := strings.Cut(got.header.Get("Content-Type"), ";")
	if stream := kind == "text/event-stream" || kind == "application/x-ndjson"; stream != r.streams() {
		t.Errorf("%s: the answer is %s", r.Name, kind)
	}
	lines := strings.Split(strings.TrimSpace(string(got.body)), "\n")
	last := strings.TrimPrefix(lines[len(lines)-1], "data: ")
	ended := func(signs ...string) {
		if !slices.ContainsFunc(signs, func(sign string) bool { return strings.Contains(last, sign) }) {
			t.Errorf("%s: the last event is %s", r.Name, last)
		}
	}
	switch {
	case kind == "application/x-ndjson":
		ended(`"done":true`)
	case kind == "application/json":
		last = string(got.body)
	case kind != "text/event-stream":
		return nil
	case strings.HasPrefix(r.Path, "/v1/responses"):
		ended(`"type":"response.completed"`, `"type":"response.incomplete"`)
	case strings.HasPrefix(r.Path, "/v1/messages"):
		ended(`"type":"message_stop"`)
	default:
		ended(lab.Done)
		return nil
	}
	if err := json.Unmarshal([]byte(last), &answer); err != nil || answer["error"] != nil {
		t.Errorf("%s: %v in %s", r.Name, err, last)
	}
	if response, ok := answer["response"].(map[string]any); ok {
		return response
	}
	return answer
}

// streams reports whether the request asks for a stream; Ollama's API streams by default.
func (r *habitRequest) streams() bool {
	asked := struct{ Stream bool }{r.Path == "/api/chat" || r.Path == "/api/generate"}
	_ = json.Unmarshal(r.Body, &asked) // a GET has no body
	return asked.Stream
}

// member returns the member at a path of an answer, or nil.
func member(of any, path []string) any {
	for _, name := range path {
		switch at := of.(type) {
		case map[string]any:
			of = at[name]
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i >= len(at) {
				return nil
			}
			of = at[i]
		default:
			return nil
		}
	}
	return of
}
