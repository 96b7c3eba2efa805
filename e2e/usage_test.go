package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/whence-dev/whence/internal/polltest"
	usagelog "github.com/whence-dev/whence/pkg/usage"
)

// usageRecords returns the usage records of a file, without an incomplete last line.
func usageRecords(t *testing.T, path string) (all []usagelog.Record) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		var r usagelog.Record
		if !strings.HasSuffix(line, "\n") {
			break
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%v in %q", err, line)
		}
		all = append(all, r)
	}
	return all
}

// An accounting has the expected usage records of one stream.
type accounting struct {
	what   string
	id     string
	finals int
	hops   string // the hops that wrote an orphan record, sorted
	reason string // of the record that counts
	origin string // "" for any: the story says it
	answer *usage // the usage that the client read; nil if it read none
}

// check compares records with the expected ones, and returns the difference, or "".
func (a accounting) check(records []usagelog.Record) string {
	own := slices.DeleteFunc(slices.Clone(records), func(r usagelog.Record) bool { return r.ID != a.id })
	finals := 0
	var hops []string
	for _, r := range own {
		if r.Kind == usagelog.Final {
			finals++
		} else {
			hops = append(hops, r.Hop)
		}
	}
	slices.Sort(hops)
	joined := usagelog.Join(own)
	if finals != a.finals || strings.Join(hops, " ") != a.hops || len(joined) != 1 {
		return fmt.Sprintf("%d final records, orphans of %q, %d count", finals, hops, len(joined))
	}
	r := joined[0]
	if r.Reason != a.reason || a.origin != "" && r.Origin != a.origin || r.Wasted+r.Delivered != r.Generated || r.Ended.Before(r.Received) {
		return fmt.Sprintf("%+v", r)
	}
	if u := a.answer; u != nil && (int(r.Prompt) != u.Prompt || int(r.Delivered) != u.Completion) {
		return fmt.Sprintf("%+v, but the answer says %+v", r, u)
	}
	return ""
}

// usageBooks are the usage records of a path, and their expected contents.
type usageBooks struct {
	t    *testing.T
	w    *whence
	file string
	want []accounting
}

// recorded waits until the records match a.
func (b *usageBooks) recorded(a accounting) {
	b.t.Helper()
	differs := "not asked yet"
	defer func() {
		if differs != "" {
			b.t.Logf("%s: %s", a.what, differs)
		}
	}()
	polltest.Eventually(b.t, "the records of "+a.what, func() bool {
		differs = a.check(usageRecords(b.t, b.file))
		return differs == ""
	})
}

// known compares a final record with the story of its stream.
func (b *usageBooks) known(a accounting) {
	b.t.Helper()
	b.want = append(b.want, a)
	b.recorded(a)
	s := b.w.why(b.t, a.id)
	for _, r := range usageRecords(b.t, b.file) {
		if r.ID != a.id || r.Kind != usagelog.Final {
			continue
		}
		cached := func(n *uint32) int64 {
			if n == nil {
				return -1
			}
			return int64(*n)
		}
		if r.Prompt != s.Tokens.Prompt || cached(r.Cached) != cached(s.Tokens.Cached) || r.Generated != s.Tokens.Generated || r.Delivered != s.Tokens.Delivered || r.Wasted != s.Tokens.Wasted ||
			r.Reason != s.Reason || r.Origin != s.Origin || !slices.Equal(r.Path, s.Path) || r.Model != s.Model {
			b.t.Errorf("%s: the record is %+v, the story %+v", a.what, r, s)
		}
	}
}

// TestEveryEndingHasOneUsageRecord: for every kind of ending, one record counts, with the figures
// of why and of the answer.
func TestEveryEndingHasOneUsageRecord(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "usage.jsonl")
	w := run(t, separate, flags{
		all: []string{"--usage-file", file}, worker: []string{"--pace", "40", "--no-prefix-cache"}, api: []string{"--drain", "100ms"},
	})
	joint := w.topology == inGateway // api-service and chat-service die together
	b := &usageBooks{t: t, w: w, file: file}
	known := b.known

	whole := w.post(t, greedy("What is 2 + 3?"))
	known(accounting{what: "a whole answer", id: whole.header.Get(idName), finals: 1, reason: "completed", origin: "engine", answer: whole.completion(t).Usage})
	several := w.post(t, greedy("What is 2 + 3?", "n", 2))
	known(accounting{what: "two choices", id: several.header.Get(idName), finals: 1, reason: "completed", answer: several.completion(t).Usage})
	l := w.open(t, greedy("What is 2 + 3?", "stream_options", map[string]any{"include_usage": true}))
	l.completed(t)
	known(accounting{what: "a stream", id: l.id, finals: 1, reason: "completed", origin: "engine", answer: l.usage})
	unknown := w.post(t, greedy(short, "model", "no-such-model"))
	known(accounting{what: "an unknown model", id: unknown.header.Get(idName), finals: 1, reason: "not_found", origin: "chat-service"})

	l = w.open(t, greedy(long)).begun(t)
	l.close()
	w.idle(t)
	known(accounting{what: "a client that leaves", id: l.id, finals: 1, reason: "client_gone", origin: "client"})
	l = w.open(t, greedy(long)).begun(t)
	w.cancel(t, w.api, l.id)
	l.failed(t)
	known(accounting{what: "a stop", id: l.id, finals: 1, reason: "user_stop", origin: "client"})

	l = w.open(t, greedy(long)).begun(t)
	w.processes[llmWorker].kill(t)
	l.failed(t)
	known(accounting{what: "a killed worker", id: l.id, finals: 1, reason: "peer_lost", origin: "llm-worker/0"})
	w.restart(t, llmWorker)
	w.ready(t)

	if !joint {
		l = w.open(t, greedy(long)).begun(t)
		w.processes[chatService].kill(t)
		l.failed(t)
		known(accounting{what: "a killed chat-service", id: l.id, finals: 1, hops: "llm-worker/0", reason: "peer_lost", origin: "chat-service"})
		w.restart(t, chatService)
		w.ready(t)
	}

	l = w.open(t, greedy(long, "n", 2)).begun(t)
	w.processes[apiService].kill(t)
	orphaned := accounting{what: "a killed api-service", id: l.id, hops: "chat-service", reason: "peer_lost", origin: "api-service"}
	if joint {
		orphaned.hops, orphaned.origin = "llm-worker/0 llm-worker/0", "chat-service"
	}
	b.want = append(b.want, orphaned)
	b.recorded(orphaned)
	w.restart(t, apiService)
	w.ready(t)

	l = w.open(t, greedy(long)).begun(t)
	w.processes[apiService].terminate(t)
	l.failed(t)
	w.processes[apiService].exit(t)
	b.want = append(b.want, accounting{what: "a drain", id: l.id, finals: 1, reason: "draining", origin: "api-service"})

	records := usageRecords(t, file)
	for _, a := range b.want {
		if differs := a.check(records); differs != "" {
			t.Errorf("%s: %s", a.what, differs)
		}
	}
}

// TestUsageRecordsNameTenantKeyAndSurface: they contain neither the key nor the prompt.
func TestUsageRecordsNameTenantKeyAndSurface(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, keys := filepath.Join(dir, "usage.jsonl"), filepath.Join(dir, "keys.yaml")
	if err := os.WriteFile(keys, []byte("keys:\n  - {key: secret-key, id: first, tenant: search}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w := run(t, allInOne, flags{api: []string{"--usage-file", file, "--keys", keys}})
	const prompt = "Where does the fox live?"
	want := map[string]string{} // surface by id
	for path, body := range map[string]string{
		"/v1/chat/completions": `{"model":"whence-tiny","max_tokens":4,"messages":[{"role":"user","content":"%s"}]}`,
		"/v1/completions":      `{"model":"whence-tiny","max_tokens":4,"prompt":"%s"}`,
		"/v1/embeddings":       `{"model":"whence-tiny","input":"%s"}`,
		"/generate":            `{"text":"%s","sampling_params":{"max_new_tokens":4}}`,
		"/v1/messages":         `{"model":"whence-tiny","max_tokens":4,"messages":[{"role":"user","content":"%s"}]}`,
		"/api/chat":            `{"model":"whence-tiny:latest","options":{"num_predict":4},"messages":[{"role":"user","content":"%s"}]}`,
		"/v1/streams":          `{"model":"whence-tiny","max_tokens":4,"messages":[{"role":"user","content":"%s"}]}`,
	} {
		r := replyTo(t)(w.do(t.Context(), http.MethodPost, w.url(path), fmt.Sprintf(body, prompt), "Authorization", "Bearer secret-key"))
		if r.status/100 != 2 {
			t.Fatalf("%s: status %d: %s", path, r.status, r.body)
		}
		want[r.header.Get(idName)] = map[string]string{
			"/v1/chat/completions": "chat", "/v1/completions": "completions", "/v1/embeddings": "embeddings", "/generate": "generate",
			"/v1/messages": "messages", "/v1/streams": "streams", "/api/chat": "ollama",
		}[path]
	}
	var records []usagelog.Record
	polltest.Eventually(t, "all streams have records", func() bool {
		records = usageRecords(t, file)
		return len(records) >= len(want)
	})
	for _, r := range records {
		if r.Kind != usagelog.Final || r.Tenant != "search" || r.Key != "first" || r.Surface != want[r.ID] || r.Worker != "llm-worker/0" || r.Model != model || r.Prompt == 0 {
			t.Errorf("%+v, want surface %q", r, want[r.ID])
		}
		if embeds := r.Surface == "embeddings"; embeds != (r.FirstToken == nil) || embeds != (r.Delivered == 0) {
			t.Errorf("%+v", r)
		}
		delete(want, r.ID)
	}
	if len(want) > 0 {
		t.Errorf("no records of %v", want)
	}
	if b, err := os.ReadFile(file); err != nil || strings.Contains(string(b), prompt) || strings.Contains(string(b), "secret-key") {
		t.Errorf("%v: the file has the prompt or the key:\n%s", err, b)
	}
}
