package command

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/whence-dev/whence/internal/cli"
)

// executeStreams runs a command against an api-service and returns its output and its status.
func executeStreams(t *testing.T, cmd *cobra.Command, api http.HandlerFunc, args ...string) (out, errs string, status int) {
	t.Helper()
	s := httptest.NewServer(api)
	defer s.Close()
	defer http.DefaultClient.CloseIdleConnections()
	var stdout, stderr bytes.Buffer
	status = cli.Execute(t.Context(), cmd, append(args, "--url", s.URL), &stdout, &stderr)
	return stdout.String(), stderr.String(), status
}

// TestCommandsSendAKey covers an API key and the operator's key.
func TestCommandsSendAKey(t *testing.T) {
	for want, keys := range map[string][]string{
		"":            nil,
		"Bearer mine": {"--key", "mine", "--operator-key", "op"},
		"Bearer op":   {"--operator-key", "op"},
	} {
		for _, args := range [][]string{{"why", "some-id"}, {"stop", "some-id"}, {"streams"}} {
			cmd := map[string]func() *cobra.Command{"why": Why, "stop": Stop, "streams": Streams}[args[0]]()
			_, errs, status := executeStreams(t, cmd, func(w http.ResponseWriter, r *http.Request) {
				if got := r.Header.Get("Authorization"); got != want {
					t.Errorf("%v %v: the key is %q, want %q", args, keys, got, want)
				}
				w.WriteHeader(http.StatusNotFound)
			}, append(args[1:], keys...)...)
			if status != 1 || !strings.Contains(errs, "answered 404") {
				t.Errorf("%v: status %d, %s", args, status, errs)
			}
		}
	}
}

func TestListFollowsPages(t *testing.T) {
	out, errs, status := executeStreams(t, Streams(), func(w http.ResponseWriter, r *http.Request) {
		page := `{"streams":[{"id":"old","hops":[{}],"tokens":{}}],"next_page_token":"a b.1"}`
		switch token := r.URL.Query().Get("page_token"); token {
		case "":
		case "a b.1":
			page = `{"streams":[{"id":"young","hops":[{}],"tokens":{}}]}`
		default:
			t.Errorf("asks for the page %q", token)
		}
		_, _ = w.Write([]byte(page))
	})
	if lines := strings.Split(out, "\n"); status != 0 || len(lines) != 4 || !strings.HasPrefix(lines[1], "old ") || !strings.HasPrefix(lines[2], "young ") {
		t.Errorf("status %d, %q, %s", status, out, errs)
	}
}

func TestListSelectsEndedStreams(t *testing.T) {
	out, errs, status := executeStreams(t, Streams(), func(w http.ResponseWriter, r *http.Request) {
		if got := r.URL.RawQuery; got != "hop=llm-worker%2F0&limit=3&reason=peer_lost&state=ended" {
			t.Errorf("asks for %s", got)
		}
		_, _ = w.Write([]byte(`{"streams":[{"id":"x","state":"ended","reason":"peer_lost","origin":"llm-worker/0","hops":[{"took_ms":1500}],"tokens":{"delivered":4}}]}`))
	}, "--ended", "--reason", "peer_lost", "--hop", "llm-worker/0", "--limit", "3")
	if status != 0 || !strings.Contains(out, "1.5s  peer_lost by llm-worker/0  4") {
		t.Errorf("status %d, %q, %s", status, out, errs)
	}
	never := func(_ http.ResponseWriter, r *http.Request) { t.Errorf("asks for %s", r.URL) }
	for want, args := range map[string][]string{"add --ended": {"--reason", "peer_lost"}, "--limit is 0": {"--ended", "--limit", "0"}, "unexpected argument": {"x"}} {
		if _, errs, status := executeStreams(t, Streams(), never, args...); status != 2 || !strings.Contains(errs, want) {
			t.Errorf("%v: status %d, %s", args, status, errs)
		}
	}
}

func TestListSelectsAWorker(t *testing.T) {
	for want, args := range map[string][]string{
		"worker=llm-worker%2F0":                       {"--worker", "llm-worker/0"},
		"limit=100&state=ended&worker=llm-worker%2F0": {"--worker", "llm-worker/0", "--ended"},
	} {
		asked := ""
		_, errs, status := executeStreams(t, Streams(), func(w http.ResponseWriter, r *http.Request) {
			asked = r.URL.RawQuery
			_, _ = w.Write([]byte(`{"streams":[]}`))
		}, args...)
		if asked != want || status != 0 || !strings.HasPrefix(errs, "no ") {
			t.Errorf("%v: asks for %s; status %d, %s", args, asked, status, errs)
		}
	}
}

func TestWhyPrintsTextOrJSON(t *testing.T) {
	api := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.EscapedPath() != "/v1/streams/a%2Fb" {
			t.Errorf("asks for %s", r.URL)
		}
		_, _ = w.Write([]byte(`{"id":"a/b","state":"ended","reason":"user_stop","origin":"client","hops":[],"tokens":{}}`))
	}
	if out, errs, status := executeStreams(t, Why(), api, "a/b"); status != 0 || !strings.HasPrefix(out, "a/b  ended: user_stop by client") {
		t.Errorf("status %d, %q, %s", status, out, errs)
	}
	if out, errs, status := executeStreams(t, Why(), api, "--json", "a/b"); status != 0 || !strings.Contains(out, `"reason": "user_stop"`) {
		t.Errorf("status %d, %q, %s", status, out, errs)
	}
	for want, args := range map[string][]string{"ID is missing": {}, "unexpected argument \"b\"": {"a", "b"}} {
		if _, errs, status := executeStreams(t, Why(), api, args...); status != 2 || !strings.Contains(errs, want) {
			t.Errorf("%v: status %d, %s", args, status, errs)
		}
	}
}

func TestCompletionReadsTheEnvironment(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Get("Authorization"); got != "Bearer mine" {
			t.Errorf("the key is %q", got)
		}
		_, _ = w.Write([]byte(`{"streams":[{"id":"s","model":"m\u001b[2J","hops":[{}],"tokens":{}}]}`))
	}))
	defer s.Close()
	defer http.DefaultClient.CloseIdleConnections()
	t.Setenv("WHENCE_URL", s.URL+"/v1/")
	t.Setenv("WHENCE_KEY", "mine")
	root := &cobra.Command{Use: "whence"}
	root.AddCommand(Why())
	var out, errs bytes.Buffer
	if status := cli.Execute(t.Context(), root, []string{"__complete", "why", ""}, &out, &errs); status != 0 || !strings.HasPrefix(out.String(), "s\tm[2J\n") {
		t.Errorf("status %d, %q, %s", status, &out, &errs)
	}
}

// TestTextOfAServiceCannotControlATerminal covers tables, stories and errors.
func TestTextOfAServiceCannotControlATerminal(t *testing.T) {
	const bad = `"\u001b[2J\u009b2J\u0007\r"`
	for body, cmd := range map[string]*cobra.Command{
		`{"streams":[{"id":"s","model":` + bad + `,"state":` + bad + `,"hops":[{"peer":` + bad + `}],"tokens":{}}]}`: Streams(),
		`{"id":"s","state":"ended","reason":"internal","message":` + bad + `,"hops":[{"hop":` + bad + `}]}`:          Why(),
		`{"error":{"message":` + bad + `,"type":"internal","code":"internal"}}`:                                      Stop(),
	} {
		args := []string{"s"}
		if cmd.Name() == "streams" {
			args = nil
		}
		out, errs, _ := executeStreams(t, cmd, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(body)) }, args...)
		if strings.ContainsAny(out+errs, "\x1b\u009b\a\r") || cmd.Name() != "stop" && !strings.Contains(out, "[2J") {
			t.Errorf("%s prints %q, %q", cmd.Name(), out, errs)
		}
	}
}

// TestEmptyListSaysSo: on standard error, so that scripts read an empty list.
func TestEmptyListSaysSo(t *testing.T) {
	none := func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"streams":[]}`)) }
	for want, args := range map[string][]string{
		"no live streams; whence streams --ended lists ended streams\n": nil,
		"no ended streams\n":       {"--ended"},
		"no ended streams match\n": {"--ended", "--reason", "peer_lost"},
	} {
		if out, errs, status := executeStreams(t, Streams(), none, args...); status != 0 || out != "" || errs != want {
			t.Errorf("%v: status %d, %q, %q; want %q", args, status, out, errs, want)
		}
	}
	if out, errs, status := executeStreams(t, Streams(), none, "--json"); status != 0 || out != "[]\n" || errs != "" {
		t.Errorf("--json: status %d, %q, %q", status, out, errs)
	}
}
