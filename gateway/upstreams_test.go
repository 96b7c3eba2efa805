package gateway

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/whence-dev/whence/chat-service/models"
	"github.com/whence-dev/whence/internal/loopback"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/llm-worker/worker"
	"github.com/whence-dev/whence/pkg/rpc/guard"
)

// TestServersOfOneModelShareACard: an alias that two models have stands for the first, and a model's own name for that model.
func TestServersOfOneModelShareACard(t *testing.T) {
	u := NewUpstreams(worker.Config{}, "")
	u.members = []member{
		{"a", []string{"acme/a", "m"}, nil, "/a", "127.0.0.1:1", nil}, {"b", []string{"m", "a"}, nil, "/b", "127.0.0.1:2", nil}, {"a", []string{"acme/a"}, nil, "/a", "127.0.0.1:3", nil},
	}
	cards := u.cards(models.Card{Policy: "kv"})
	if len(cards) != 2 {
		t.Fatalf("%d cards", len(cards))
	}
	for i, want := range []models.Card{
		{Name: "a", Directory: "/a", Workers: "127.0.0.1:1,127.0.0.1:3", Aliases: []string{"acme/a", "m"}, Policy: "kv"},
		{Name: "b", Directory: "/b", Workers: "127.0.0.1:2", Policy: "kv"},
	} {
		c := cards[i]
		if c.Name != want.Name || c.Directory != want.Directory || c.Workers != want.Workers || c.Policy != want.Policy || !slices.Equal(c.Aliases, want.Aliases) {
			t.Errorf("%+v; want %+v", c, want)
		}
	}
	if first := u.First(); first != "a" {
		t.Errorf("the first model is %q", first)
	}
}

// TestAdaptersAreThoseOfTheirServers: a card has the adapters that all of its servers list, and --adapters chooses among
// them. The adapters of a single model may be in no list.
func TestAdaptersAreThoseOfTheirServers(t *testing.T) {
	long := strings.Repeat("x", 200)
	a, again := member{name: "a", adapters: []string{"legal", "tax", "b", long}, addr: "127.0.0.1:1"}, member{name: "a", adapters: []string{"b", "legal"}, addr: "127.0.0.1:3"}
	b := member{name: "b", adapters: []string{"legal", "art"}, addr: "127.0.0.1:2"}
	for _, test := range []struct {
		members []member
		named   string // by --adapters
		want    string // of each card
	}{
		{[]member{a}, "", "legal,tax,b"}, {[]member{a, again}, "", "legal,b"}, {[]member{a, b}, "", "legal,tax;art"}, {[]member{a, b}, "tax,art,none", "tax;art"},
		{[]member{a}, "unlisted", "unlisted"}, {[]member{b}, "", "legal,art"},
	} {
		u := NewUpstreams(worker.Config{}, "")
		u.members = test.members
		var named []string
		if test.named != "" {
			named = strings.Split(test.named, ",")
		}
		var got []string
		for _, card := range u.cards(models.Card{Adapters: named}) {
			got = append(got, strings.Join(card.Adapters, ","))
		}
		if all := strings.Join(got, ";"); all != test.want {
			t.Errorf("%d servers, --adapters %q: %q, want %q", len(test.members), test.named, all, test.want)
		}
	}
}

// answerOfOneToken is what a vLLM answers to its trial.
const answerOfOneToken = `data: {"choices":[{"index":0,"text":"","token_ids":[300],"finish_reason":"length"}]}

data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}

data: [DONE]

`

// serve serves the list of models of a vLLM, which answers its trial, unless it is mute.
func serve(t *testing.T, name string, mute bool) string {
	t.Helper()
	dir, err := filepath.Abs("../internal/whencetiny/model")
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/v1/completions" && !mute:
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, answerOfOneToken)
			return
		case r.URL.Path != "/v1/models":
			http.NotFound(w, r)
			return
		}
		_, _ = fmt.Fprintf(w, `{"data":[{"id":%q,"owned_by":"vllm","root":%q,"max_model_len":1024}]}`, name, dir)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// TestAServerThatIsNotThereHoldsUpNothing: the models of the others are served, and the reason is known. A server
// that does not work joins, too: chat-service says what is wrong with it.
func TestAServerThatIsNotThereHoldsUpNothing(t *testing.T) {
	nobody, err := loopback.FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	c := worker.Config{Calls: guard.Default, Timers: worker.DefaultTimers}
	c.Upstream.Upstream, c.Further = serve(t, "acme/a", false), []string{"http://" + nobody, serve(t, "/models/b", true), serve(t, "acme/a", false)}
	u := NewUpstreams(c, "127.0.0.1:0")
	if err := u.Validate(); err != nil {
		t.Fatal(err)
	}
	if missing := u.Missing(); strings.Count(missing, "has not answered yet") != 4 {
		t.Error(missing)
	}
	ctx, stop := context.WithCancel(t.Context())
	done, seen := make(chan error, 1), make(chan []models.Card, 10)
	go func() { done <- u.Run(ctx, slog.New(slog.DiscardHandler)) }()
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		u.Follow(ctx, models.Card{}, func(cards []models.Card) { seen <- cards })
	}()
	var workers string // of all servers
	polltest.Eventually(t, "all servers that answer have workers", func() bool {
		cards := polltest.Receive(t, "cards", seen)
		slices.SortFunc(cards, func(a, b models.Card) int { return strings.Compare(a.Name, b.Name) })
		workers = cards[0].Workers + "," + cards[len(cards)-1].Workers
		return len(cards) == 2 && cards[0].Name == "acme/a" && strings.Count(cards[0].Workers, ":") == 2 && cards[1].Name == "b" && slices.Equal(cards[1].Aliases, []string{"/models/b"})
	})
	polltest.Eventually(t, "only one server is missing", func() bool {
		missing := u.Missing()
		return strings.HasPrefix(missing, "server 2 of --upstream: ") && strings.Contains(missing, "nothing listens") && !strings.Contains(missing, nobody) && !strings.Contains(missing, ";")
	})
	for addr := range strings.SplitSeq(workers, ",") {
		if u.Near(addr) == nil {
			t.Errorf("the worker at %s is called over the network", addr)
		}
	}
	stop()
	if err := polltest.Receive(t, "the end", done); err != nil {
		t.Error(err)
	}
	<-followed
}
