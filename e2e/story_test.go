package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// TestStories runs the files of testdata on both topologies: requests with their exact answers.
//
//	get, head, post, put, delete, options
//	    sends the input as a body. Arguments: path, /v1/chat/completions if there is none; type, the Content-Type,
//	    application/json if there is none; id, the X-Request-Id; times, how often what stands between « and » is
//	    repeated; quoted, for an input that is a Go string, which can hold any bytes.
//	hold id=…
//	    starts a stream and keeps it, until release id=…
//
// An answer is its status, the headers that a client acts on, and its body, with placeholders for
// values that differ between runs: <id>, <time>. The text of a stream, which may arrive in any
// pieces, is joined into one line.
func TestStories(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no stories", err)
	}
	for _, topology := range topologies() {
		for _, file := range files { // sequential, because -rewrite writes the files
			t.Run(topology+" "+filepath.Base(file), func(t *testing.T) {
				// Without the prefix cache, usage does not depend on earlier requests.
				var api []string
				if strings.Contains(file, "bad") { // most of these are answered otherwise
					api = []string{"--strict", "--max-body", "2097152"}
				}
				w := run(t, topology, flags{api: api, worker: []string{"--no-prefix-cache", "--pace", "200"}})
				s := story{whole: t, w: w, held: map[string]*live{}}
				datadriven.RunTest(t, file, s.do)
				for id, l := range s.held {
					t.Errorf("%s is not released", id)
					l.close()
				}
				w.works(t)
				w.idle(t)
			})
		}
	}
}

type story struct {
	whole *testing.T // held streams last longer than one command's test
	w     *whence
	held  map[string]*live
}

func (s story) do(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	switch d.Cmd {
	case "get", "head", "post", "put", "delete", "options":
		return s.request(t, d)
	case "hold":
		resp, err := s.w.send(s.whole, greedy(long, "stream", true), argument(t, d, "id", ""))
		if err != nil {
			t.Fatal(err)
		}
		l := newLive(resp)
		s.held[l.id] = l.begun(t)
		return strconv.Itoa(resp.StatusCode)
	case "release":
		id := argument(t, d, "id", "")
		s.held[id].close()
		delete(s.held, id)
		s.w.clientGone(t, id)
		return "released"
	default:
		d.Fatalf(t, "unknown command %s", d.Cmd)
		return ""
	}
}

func (s story) request(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	body := strings.TrimSuffix(d.Input, "\n")
	if d.HasArg("quoted") {
		var err error
		if body, err = strconv.Unquote(body); err != nil {
			d.Fatalf(t, "%s: %v", d.Input, err)
		}
	}
	if times, err := strconv.Atoi(argument(t, d, "times", "1")); err == nil {
		body = marked.ReplaceAllStringFunc(body, func(s string) string {
			return strings.Repeat(strings.Trim(s, "«»"), times)
		})
	}
	resp, err := s.w.do(t.Context(), strings.ToUpper(d.Cmd), s.w.url(argument(t, d, "path", "/v1/chat/completions")), body,
		"Content-Type", argument(t, d, "type", "application/json"), idName, argument(t, d, "id", ""))
	if err != nil {
		d.Fatalf(t, "%v", err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		d.Fatalf(t, "%v after %q", err, got)
	}
	return formatResponse(t, resp, string(got))
}

// marked matches the text that the argument times repeats.
var marked = regexp.MustCompile(`«[^»]*»`)

func argument(t *testing.T, d *datadriven.TestData, name, otherwise string) string {
	t.Helper()
	if d.HasArg(name) {
		d.ScanArgs(t, name, &otherwise)
	}
	return otherwise
}

// changing lists values that differ between runs, with their placeholders.
var changing = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`\bstr-[a-z0-9]{26}\b`), "<id>"},
	{regexp.MustCompile(`"created":\d+`), `"created":<time>`},
	{regexp.MustCompile(`\bmine-[a-z0-9]{10}\b`), "mine-<suffix>"}, // of a second stream with this id
	{regexp.MustCompile(`"e2e_latency":[0-9.e-]+`), `"e2e_latency":<time>`},
}

// formatResponse returns a response in the form of the stories.
func formatResponse(t *testing.T, resp *http.Response, body string) string {
	t.Helper()
	var b strings.Builder
	fmt.Fprintln(&b, resp.StatusCode)
	for _, name := range []string{"Retry-After", "Allow"} {
		if v := resp.Header.Get(name); v != "" {
			fmt.Fprintf(&b, "%s: %s\n", name, v)
		}
	}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		body = joined(t, body)
	}
	for _, c := range changing {
		body = c.pattern.ReplaceAllString(body, c.with)
	}
	if body != "" {
		b.WriteString(strings.TrimSuffix(body, "\n") + "\n")
	}
	return b.String()
}

// firstText and lastText match the text of a first and of a last chunk: how many tokens a chunk has
// depends on the time.
var (
	firstText = regexp.MustCompile(`("role":"assistant","content":)"(?:[^"\\]|\\.)*"`)
	lastText  = regexp.MustCompile(`("delta":\{"content":)"(?:[^"\\]|\\.)*"`)
)

// joined returns a stream with its text joined into one line.
func joined(t *testing.T, body string) string {
	t.Helper()
	var b, text strings.Builder
	for _, data := range events(t, []byte(body)) {
		var c chunk
		if data != "[DONE]" {
			if err := json.Unmarshal([]byte(data), &c); err != nil {
				t.Fatalf("%q: %v", data, err)
			}
		}
		first := false // the first piece, which has the role, too
		if len(c.Choices) == 1 && c.Choices[0].Delta.Content != nil {
			if first = c.Choices[0].Delta.Role != nil; first {
				fmt.Fprintf(&b, "data: %s\n", firstText.ReplaceAllString(data, "$1…"))
			}
			text.WriteString(*c.Choices[0].Delta.Content)
			if c.Choices[0].FinishReason == nil || first {
				continue
			}
			data = lastText.ReplaceAllString(data, "$1…")
		}
		if text.Len() > 0 {
			fmt.Fprintf(&b, "text: %q\n", text.String())
			text.Reset()
		}
		fmt.Fprintf(&b, "data: %s\n", data)
	}
	return b.String()
}
