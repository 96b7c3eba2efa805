package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/lab"
)

var (
	failoverFile = flag.String("failover", "", "append the table of TestFailover to this `file`")
	failoverAll  = flag.Bool("failover-all", false, "run each scenario of TestFailover in all variants and modes")
)

// hangGuard bounds a request. A request that takes longer counts as a hang.
const hangGuard = 45 * time.Second

// playsAtOnce bounds the scenarios that run concurrently. They spend most of their time waiting.
const playsAtOnce = 6

// A cell is a scenario in one variant and mode.
type cell struct {
	*scenario
	variant, mode string
}

func (c *cell) title() string { return c.name + "/" + c.variant + "/" + c.mode }

// cells returns the cells to play: all of them, or one per scenario, with variants and modes in
// turn.
func cells(all bool) (played []*cell) {
	for i := range scenarios {
		for j, variant := range []string{resumable, plain} {
			for k, mode := range []string{modeStreamed, modeWhole} {
				if all || (2*j+k)%4 == i%4 || interesting(&scenarios[i], variant, mode) {
					played = append(played, &cell{&scenarios[i], variant, mode})
				}
			}
		}
	}
	return played
}

// interesting reports whether a scenario's outcome in a variant and mode differs from the others'.
func interesting(s *scenario, variant, mode string) bool {
	return s.alone || variant == plain && fmt.Sprint(s.expect(plain, modeStreamed)) != fmt.Sprint(s.expect(plain, modeWhole))
}

// A result is the outcome of a cell.
type result struct {
	*cell
	saw   string
	calls [2]int
	wrong []string
}

// A failoverStage is shared by all cells: two workers of each variant, each before its provider.
type failoverStage struct {
	plays   plays
	workers map[string][]string // values for --worker, by variant
}

// TestFailover runs every scenario against separate processes: an api-service and a chat-service
// that have seen no failure yet, and two llm-workers, each with its own provider.
func TestFailover(t *testing.T) {
	t.Parallel()
	binary(t, "whence")
	s := &failoverStage{workers: map[string][]string{}}
	for _, variant := range []string{resumable, plain} {
		var addrs []string
		for i := range 2 {
			name := fmt.Sprintf("%s/%d", variant, i)
			p := newProvider(t, variant, name, &s.plays)
			w := service(t, llmWorker, "127.0.0.1:0", []string{"--name", name, "--stall-timeout", "8s"}, onServer("openai", p.URL))
			addrs = append(addrs, w.listening(t))
		}
		s.workers[variant] = addrs
	}
	var results []*result
	t.Cleanup(func() {
		if t.Failed() || *failoverFile != "" {
			appendTable(t, *failoverFile, failoverTable(results))
		}
	})
	var playing sync.WaitGroup
	places := make(chan struct{}, playsAtOnce)
	for _, c := range cells(*failoverAll) {
		r := &result{cell: c}
		results = append(results, r)
		places <- struct{}{}
		playing.Go(func() {
			defer func() { <-places }()
			t.Run(c.title(), func(t *testing.T) { s.play(t, r) })
		})
	}
	playing.Wait()
}

// play plays a cell with new services, whose fleets know of no failure yet.
func (s *failoverStage) play(t *testing.T, r *result) {
	workers := s.workers[r.variant]
	if r.alone {
		workers = workers[:1]
	}
	chat := service(t, chatService, "127.0.0.1:0", []string{"--worker", strings.Join(workers, ","), "--policy", "round-robin"}, r.chat)
	api := service(t, apiService, "127.0.0.1:0", []string{"--chat", chat.listening(t)})
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	w := &whence{topology: separate, api: api.listening(t), http: &http.Client{Transport: transport, Timeout: hangGuard}}
	polltest.Eventually(t, "all workers are healthy", func() bool {
		var models struct {
			Data []struct{ Workers struct{ Healthy int } }
		}
		resp, err := w.http.Get(w.url("/v1/models"))
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		return json.NewDecoder(resp.Body).Decode(&models) == nil && len(models.Data) == 1 && models.Data[0].Workers.Healthy == len(workers)
	})
	y, temperature := s.plays.add(r.faults)
	want := r.expect(r.variant, r.mode)
	saws := []string{}
	for i := range max(1, r.requests) {
		id := fmt.Sprintf("failover-%v-%d", temperature, i)
		seen := request(t, w, temperature, r.mode, id)
		r.wrong = append(r.wrong, seen.compare(&want, r.mode)...)
		if want.full {
			r.wrong = append(r.wrong, failoverStoryOf(t, w, id).compare(seen, &want)...)
		}
		saws = append(saws, seen.String())
	}
	r.saw, r.calls = strings.Join(slices.Compact(saws), "; "), y.count()
	for i, bound := range [][2]int{want.first, want.second} {
		if n := r.calls[i]; n < bound[0] || n > bound[1] {
			r.wrong = append(r.wrong, fmt.Sprintf("provider %d got %d calls, want %s", i+1, n, bounds(bound)))
		}
	}
	for _, wrong := range r.wrong {
		t.Error(wrong)
	}
}

// A sight is a client's view of one answer.
type sight struct {
	status    int
	after     string // Retry-After
	text      string
	finish    string
	usage     *usage
	errors    []sightError
	done, cut bool
}

// A sightError is an error object, in a body or in a stream.
type sightError struct {
	Message, Code string
	Whence        struct {
		Reason string
		Path   []string
	}
}

// reason returns the reason of the ending, or the code of an error of the test.
func (e *sightError) reason() string {
	if e.Whence.Reason != "" {
		return e.Whence.Reason
	}
	return e.Code
}

// request requests an answer and reads the whole response.
func request(t *testing.T, w *whence, temperature float64, mode, id string) *sight {
	t.Helper()
	a := ask{"model": model, "temperature": temperature, "max_tokens": 200, "messages": []any{map[string]any{"role": "user", "content": "Tell me."}}}
	if mode == modeStreamed {
		a["stream"], a["stream_options"] = true, map[string]any{"include_usage": true}
	}
	resp, err := w.send(t, a, id)
	if err != nil {
		return &sight{cut: true, errors: []sightError{{Code: "hung", Message: err.Error()}}}
	}
	defer resp.Body.Close()
	s := &sight{status: resp.StatusCode, after: resp.Header.Get("Retry-After")}
	body, err := io.ReadAll(resp.Body)
	s.cut = err != nil
	if resp.Header.Get("Content-Type") == "text/event-stream" || bytes.HasPrefix(body, []byte("data: ")) {
		s.readEvents(t, body)
		return s
	}
	var c struct {
		completion
		Error *sightError
	}
	if err := json.Unmarshal(body, &c); err != nil {
		t.Fatalf("%q: %v", body, err)
	}
	if c.Error != nil {
		s.errors = append(s.errors, *c.Error)
	}
	for _, choice := range c.Choices {
		s.text, s.finish, s.done = s.text+choice.Message.Content, choice.FinishReason, true
	}
	s.usage = c.Usage
	return s
}

func (s *sight) readEvents(t *testing.T, body []byte) {
	t.Helper()
	for events := lab.NewEvents(bytes.NewReader(body)); ; {
		e, err := events.Next()
		switch {
		case errors.Is(err, io.EOF):
			return
		case err != nil:
			s.cut = true
			return
		case e.Comment != "":
			continue
		case e.Data == lab.Done:
			s.done = true
			continue
		}
		var c struct {
			chunk
			Error *sightError
		}
		if err := json.Unmarshal([]byte(e.Data), &c); err != nil {
			t.Fatalf("%q: %v", e.Data, err)
		}
		for _, choice := range c.Choices {
			if choice.Delta.Content != nil {
				s.text += *choice.Delta.Content
			}
			if choice.FinishReason != nil {
				s.finish = *choice.FinishReason
			}
		}
		if c.Usage != nil {
			s.usage = c.Usage
		}
		if c.Error != nil {
			s.errors = append(s.errors, *c.Error)
		}
	}
}

// String returns the text for the table.
func (s *sight) String() string {
	switch {
	case len(s.errors) > 0 && s.status != http.StatusOK:
		return fmt.Sprintf("%d `%s`", s.status, s.errors[0].reason())
	case len(s.errors) > 0:
		return fmt.Sprintf("a part, then `%s`", s.errors[0].reason())
	case s.finish == "stop" && s.text == referenceText:
		return "the full answer"
	case s.done:
		return fmt.Sprintf("a part, `%s`", s.finish)
	default:
		return "no ending"
	}
}

// says returns the expected outcome in the same form.
func (o *outcome) says(mode string) string {
	switch {
	case o.full:
		return "the full answer"
	case o.finish != "":
		return fmt.Sprintf("a part, `%s`", o.finish)
	case o.part && mode == modeStreamed:
		return fmt.Sprintf("a part, then `%s`", o.reason)
	default:
		return fmt.Sprintf("%d `%s`", o.status, o.reason)
	}
}

// compare returns the differences between the client's view and the expected outcome.
func (s *sight) compare(want *outcome, mode string) (wrong []string) {
	check := func(ok bool, format string, args ...any) {
		if !ok {
			wrong = append(wrong, fmt.Sprintf(format, args...))
		}
	}
	check(s.String() == want.says(mode), "the client saw %s, want %s", s, want.says(mode))
	check(!s.cut, "the response was cut")
	check(strings.HasPrefix(referenceText, s.text), "the client read %q, which is not a part of the answer", s.text)
	if want.full || want.finish != "" {
		check(len(s.errors) == 0 && s.done, "errors %v, [DONE] %t, of an answer that is complete", s.errors, s.done)
		check(s.usage != nil && s.usage.Total == s.usage.Prompt+s.usage.Completion && s.usage.Prompt > 0, "usage %+v", s.usage)
		return wrong
	}
	check(len(s.errors) == 1 && (!s.done || mode == modeWhole), "errors %v, [DONE] %t; want one error and no [DONE]", s.errors, s.done)
	for _, e := range s.errors {
		check(len(e.Whence.Path) > 0, "the error names no origin: %+v", e)
		if want.code != "" {
			check(e.Code == want.code, "the error has the code %q, want the provider's %q", e.Code, want.code)
		}
	}
	if want.after != "" {
		check(s.after == want.after, "Retry-After is %q, want %q", s.after, want.after)
	}
	return wrong
}

// A failoverStory is the story of an answer in GET /v1/streams/{id}.
type failoverStory struct {
	Tokens struct{ Generated, Delivered, Wasted int }
	Hops   []struct {
		Hop   string
		Moves []struct{ From, To, Reason string }
	}
}

func failoverStoryOf(t *testing.T, w *whence, id string) (s *failoverStory) {
	t.Helper()
	resp, err := w.http.Get(w.url("/v1/streams/" + id))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&s); err != nil {
		t.Fatal(err)
	}
	return s
}

// compare returns the differences between the story of a full answer and its delivery: the usage
// must count each delivered token once, except the token that ended the answer. A move leads back to
// the same worker only if the first provider must be asked again.
func (s *failoverStory) compare(seen *sight, want *outcome) (wrong []string) {
	if u := seen.usage; u != nil && s.Tokens.Delivered != u.Completion && s.Tokens.Delivered+1 != u.Completion {
		wrong = append(wrong, fmt.Sprintf("the usage has %d tokens, but %d were delivered", u.Completion, s.Tokens.Delivered))
	}
	if w := want.wasted; w != [2]int{} && (s.Tokens.Wasted < w[0] || s.Tokens.Wasted > w[1]) {
		wrong = append(wrong, fmt.Sprintf("the story has %+v, want %d to %d wasted", s.Tokens, w[0], w[1]))
	}
	moves := 0
	for _, h := range s.Hops {
		for _, m := range h.Moves {
			if moves++; m.From == "" || m.To == "" || m.From == m.To && want.first[0] < 2 {
				wrong = append(wrong, fmt.Sprintf("the story has a move from %q to %q", m.From, m.To))
			}
		}
	}
	if want.moves > 0 && moves != want.moves {
		wrong = append(wrong, fmt.Sprintf("the story has %d moves, want %d", moves, want.moves))
	}
	return wrong
}

func bounds(b [2]int) string {
	if b[0] == b[1] {
		return fmt.Sprint(b[0])
	}
	return fmt.Sprintf("%d to %d", b[0], b[1])
}

// failoverTable prints results.
func failoverTable(results []*result) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	right := 0
	fmt.Fprintf(w, "\tscenario\tproviders\tanswer\tthe client saw\texpected\tcalls\n")
	for _, r := range results {
		mark := "WRONG"
		if len(r.wrong) == 0 && r.saw != "" {
			mark = "ok"
			right++
		}
		want := r.expect(r.variant, r.mode)
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%d + %d\n", mark, r.name, r.variant, r.mode, r.saw, want.says(r.mode), r.calls[0], r.calls[1])
	}
	_ = w.Flush() // into a string
	fmt.Fprintf(&b, "%d of %d right\n\n", right, len(results))
	return b.String()
}

// TestFailoverTableInTheDocsIsCurrent compares the table in docs/reference/endings.md; -rewrite updates it.
func TestFailoverTableInTheDocsIsCurrent(t *testing.T) {
	t.Parallel()
	var table strings.Builder
	table.WriteString("| at the providers | providers | answer | the client sees | calls |\n|---|---|---|---|---|\n")
	for i := range scenarios {
		s := &scenarios[i]
		says := func(variant, mode string) string {
			o := s.expect(variant, mode)
			return fmt.Sprintf("%s | %s + %s", o.says(mode), bounds(o.first), bounds(o.second))
		}
		row := func(variants, modes, says string) {
			fmt.Fprintf(&table, "| %s | %s | %s | %s |\n", s.name, variants, modes, says)
		}
		sameVariants := says(resumable, modeStreamed) == says(plain, modeStreamed) && says(resumable, modeWhole) == says(plain, modeWhole)
		for _, variant := range []string{resumable, plain} {
			words := variant
			if sameVariants {
				words = "any"
			}
			if says(variant, modeStreamed) == says(variant, modeWhole) {
				row(words, "any", says(variant, modeWhole))
			} else {
				row(words, modeStreamed, says(variant, modeStreamed))
				row(words, modeWhole, says(variant, modeWhole))
			}
			if sameVariants {
				break
			}
		}
	}
	keepTable(t, "../docs/reference/endings.md", "<!-- failover -->\n", "<!-- end of failover -->", table.String())
}
