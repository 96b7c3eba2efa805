package e2e

import (
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

	streamstory "github.com/whence-dev/whence/api-service/story"
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
	w.awaitUsed(t, len(workers))
	y, temperature := s.plays.add(r.faults)
	want := r.expect(r.variant, r.mode)
	saws := []string{}
	for i := range max(1, r.requests) {
		id := fmt.Sprintf("failover-%v-%d", temperature, i)
		seen := w.see(t, temperature, r.mode, id)
		r.wrong = append(r.wrong, seen.compare(&want, r.mode)...)
		if want.full {
			r.wrong = append(r.wrong, compareStory(w.why(t, id), seen, &want)...)
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
	*ending
	status int
	after  string // Retry-After
	cut    bool
}

// see requests an answer and reads the whole response.
func (w *whence) see(t *testing.T, temperature float64, mode, id string) *sight {
	t.Helper()
	a := ask{"model": model, "temperature": temperature, "max_tokens": 200, "messages": []any{map[string]any{"role": "user", "content": "Tell me."}}}
	if mode == modeStreamed {
		a["stream"] = true
		usageOf(a)
	}
	resp, err := w.send(t, a, id)
	if err != nil {
		return &sight{cut: true, ending: &ending{err: &refusal{Reason: "hung", Message: err.Error()}}}
	}
	s := &sight{status: resp.StatusCode, after: resp.Header.Get("Retry-After")}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		l := newLive(resp)
		defer l.close()
		for err == nil {
			_, err = l.next()
		}
		s.ending, s.cut = &l.ending, !errors.Is(err, io.EOF)
		return s
	}
	c := readAll(t, resp).completion(t)
	s.ending = &ending{err: c.Error, usage: c.Usage}
	for _, choice := range c.Choices {
		s.text.WriteString(choice.Message.Content)
		s.finish, s.done = choice.FinishReason, true
	}
	return s
}

// String returns the text for the table.
func (s *sight) String() string {
	switch {
	case s.err != nil && s.status != http.StatusOK:
		return fmt.Sprintf("%d `%s`", s.status, s.err.reason())
	case s.err != nil:
		return fmt.Sprintf("a part, then `%s`", s.err.reason())
	case s.finish == "stop" && s.text.String() == referenceText:
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
	check(s.cut == (s.status == http.StatusOK && s.err != nil), "the response was cut: %t, after the error %+v", s.cut, s.err)
	check(strings.HasPrefix(referenceText, s.text.String()), "the client read %q, which is not a part of the answer", s.text.String())
	if want.full || want.finish != "" {
		check(s.err == nil && s.done, "error %+v, [DONE] %t, of an answer that is complete", s.err, s.done)
		check(s.usage != nil && s.usage.Total == s.usage.Prompt+s.usage.Completion && s.usage.Prompt > 0, "usage %+v", s.usage)
		return wrong
	}
	check(s.err != nil && len(s.err.Path) > 0 && (!s.done || mode == modeWhole), "error %+v, [DONE] %t; want an error with an origin, and no [DONE]", s.err, s.done)
	if want.code != "" {
		check(s.err.code() == want.code, "the error has the code %q, want the provider's %q", s.err.code(), want.code)
	}
	if want.after != "" {
		check(s.after == want.after, "Retry-After is %q, want %q", s.after, want.after)
	}
	return wrong
}

// compareStory returns the differences between the story of a full answer and its delivery: the usage
// must count each delivered token once, except the token that ended the answer. A move leads back to
// the same worker only if the first provider must be asked again.
func compareStory(s streamstory.Story, seen *sight, want *outcome) (wrong []string) {
	if u := seen.usage; u != nil && int(s.Tokens.Delivered) != u.Completion && int(s.Tokens.Delivered)+1 != u.Completion {
		wrong = append(wrong, fmt.Sprintf("the usage has %d tokens, but %d were delivered", u.Completion, s.Tokens.Delivered))
	}
	if w := want.wasted; w != [2]int{} && (int(s.Tokens.Wasted) < w[0] || int(s.Tokens.Wasted) > w[1]) {
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

// TestFailoverTableInTheDocsIsCurrent compares the table in bench/endings.md; -rewrite updates it.
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
	keepTable(t, "../bench/endings.md", "<!-- failover -->\n", "<!-- end of failover -->", table.String())
}
