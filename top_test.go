package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/whence-dev/whence/pkg/streamerr"
)

// topOnce returns the output of `top --once` for the given answer of an api-service.
func topOnce(t *testing.T, status int, body string) (string, error) {
	t.Helper()
	edge := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/streams" {
			t.Errorf("asks for %s", r.URL)
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}))
	defer edge.Close()
	defer http.DefaultClient.CloseIdleConnections()
	out, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	failed := watch([]string{"--once", "--url", edge.URL}, out)
	b, err := os.ReadFile(out.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(b), failed
}

func TestTopListsLiveStreams(t *testing.T) {
	out, err := topOnce(t, http.StatusOK, `{"streams":[
		{"id":"a","state":"live","model":"m","tokens":{"delivered":42},"hops":[{"took_ms":12345,"peer":"10.0.0.1:5"}]},
		{"id":"longer","state":"stopped","reason":"user_stop","tokens":{},"hops":[{"took_ms":40}]}]}`)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(out, "\n")
	if len(lines) < 5 || !strings.Contains(lines[0], "2 live at http://") {
		t.Fatal(out)
	}
	for i, want := range []string{
		"STREAM  MODEL  AGE    STATE               TOKENS  PEER",
		"a       m      12.3s  live                42      10.0.0.1:5",
		"longer  -      0s     stopped, user_stop  0       ",
	} {
		if lines[2+i] != want {
			t.Errorf("prints %q, want %q", lines[2+i], want)
		}
	}
	if strings.Contains(out, "\x1b") {
		t.Error("a file gets the codes of a terminal")
	}
}

func TestTopFollowsPages(t *testing.T) {
	edge := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		page := `{"streams":[{"id":"old","hops":[{}],"tokens":{}}],"next_page_token":"a b.1"}`
		switch token := r.URL.Query().Get("page_token"); token {
		case "":
		case "a b.1":
			page = `{"streams":[{"id":"young","hops":[{}],"tokens":{}}]}`
		default:
			t.Errorf("asks for the page %q", token)
		}
		_, _ = w.Write([]byte(page))
	}))
	defer edge.Close()
	defer http.DefaultClient.CloseIdleConnections()
	live, err := liveStreams(t.Context(), &client{url: edge.URL})
	if err != nil || len(live) != 2 || live[0].ID != "old" || live[1].ID != "young" {
		t.Errorf("lists %+v, %v", live, err)
	}
}

func TestTopSaysWhyItCannot(t *testing.T) {
	_, err := topOnce(t, http.StatusServiceUnavailable, string(streamerr.New(streamerr.Draining, "too late").JSON()))
	if streamerr.As(err).Reason != streamerr.Draining {
		t.Error(err)
	}
	if _, err := topOnce(t, http.StatusOK, "<p>"); err == nil || !strings.Contains(err.Error(), "cannot be parsed") {
		t.Error(err)
	}
	if err := watch([]string{"--every", "0s"}, os.Stdout); err == nil || !strings.Contains(err.Error(), "--every") {
		t.Error(err)
	}
}

// TestSubcommandsSendAKey covers an API key, and the operator's key.
func TestSubcommandsSendAKey(t *testing.T) {
	for want, args := range map[string][]string{
		"":            nil,
		"Bearer mine": {"--key", "mine", "--operator-key", "op"},
		"Bearer op":   {"--operator-key", "op"},
	} {
		edge := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if got := r.Header.Get("Authorization"); got != want {
				t.Errorf("%v: %s is asked for with %q, want %q", args, r.URL.Path, got, want)
			}
			w.WriteHeader(http.StatusNotFound)
		}))
		out, err := os.CreateTemp(t.TempDir(), "")
		if err != nil {
			t.Fatal(err)
		}
		if err := watch(append([]string{"--once", "--url", edge.URL}, args...), out); err == nil {
			t.Error("a refused list is none")
		}
		if err := why(append([]string{"some-id", "--url", edge.URL}, args...), out); err == nil {
			t.Error("a refused story is none")
		}
		http.DefaultClient.CloseIdleConnections()
		edge.Close()
		_ = out.Close()
	}
}
