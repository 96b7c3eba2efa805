package command

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/whence-dev/whence/api-service/story"
	"github.com/whence-dev/whence/internal/cli"
	"github.com/whence-dev/whence/internal/client"
)

// Bounds of the checks.
const (
	doctorPatience = 10 * time.Second // for an answer without a stream, and for an ending to be told
	maxSkew        = 2 * time.Second  // between the clocks
	renewalTime    = 14 * 24 * time.Hour
	maxPage        = 4 << 20 // bytes of a page of metrics
	doctorPrompt   = "Count from 1 to 40."
	doctorTokens   = 64   // of a whole answer
	longTokens     = 2000 // of an answer that is left
	eventsKept     = 3    // events after which a reader leaves
	storyInterval  = 100 * time.Millisecond
)

// address checks that an api-service answers at the URL, its certificate, its version and its clock.
func (d *doctor) address(ctx context.Context) bool {
	sent := time.Now()
	r, err := getReply(ctx, d.api.URL+"/version", 1<<16)
	took := time.Since(sent)
	if err != nil {
		d.say(resultWrong, "address", "start 'whence' there, or name another address with --url", "no answer from %s: %v", d.api.URL, err)
		return false
	}
	var told struct{ Version string }
	if json.Unmarshal([]byte(r.body), &told) != nil || told.Version == "" {
		d.say(resultWrong, "address", "name the address of an api-service with --url", "%s is no api-service: /version answers %s", d.api.URL, r.status)
		return false
	}
	d.server, d.via = r.header.Get("Server"), r.header.Get("Via")
	if own := cli.Release(); told.Version != own {
		d.say(resultWarning, "version", "use one version, apart from a rolling upgrade", "the service is %s, this command %s", told.Version, own)
	}
	d.say(resultGood, "address", "", "%s answers at %s after %v, over %s", told.Version, d.api.URL, took.Round(time.Millisecond), r.proto)
	if r.certificate != nil {
		until := r.certificate.NotAfter
		if left := time.Until(until); left < renewalTime {
			d.say(resultWarning, "tls", "renew it", "the certificate ends on %s", until.Format(time.DateOnly))
		} else {
			d.say(resultGood, "tls", "", "the certificate is valid until %s", until.Format(time.DateOnly))
		}
	}
	// The header has whole seconds, and the answer was made between the request and now.
	if date, err := http.ParseTime(r.header.Get("Date")); err == nil {
		early, late := sent.Sub(date)-time.Second, time.Until(date)
		if skew := max(early, late); skew > maxSkew {
			d.say(resultWarning, "clock", "synchronise the clocks: read tokens and signed tokens end by them", "the clocks of the service and of this machine differ by some %v", skew.Round(time.Second))
		}
	}
	return true
}

// models checks the key, and chooses the model.
func (d *doctor) models(ctx context.Context) bool {
	var list struct {
		Data []struct {
			ID        string
			Generates *bool
		}
	}
	if err := d.api.Get(ctx, "/v1/models", &list); err != nil {
		do := ""
		if d.api.Credential() == "" {
			do = "give a key with --key or WHENCE_KEY"
		}
		d.say(resultWrong, "models", do, "%v", err)
		return false
	}
	var names []string
	for _, m := range list.Data {
		if names = append(names, m.ID); d.model == "" && (m.Generates == nil || *m.Generates) {
			d.model = m.ID
		}
	}
	if len(names) == 0 {
		d.say(resultWrong, "models", "wait until a worker is healthy: 'whence top'", "the service lists no model")
		return false
	}
	d.say(resultGood, "models", "", "%s", strings.Join(names, ", "))
	if d.model == "" {
		d.say(resultSkipped, "answer", "", "no model answers chats")
	}
	return d.model != ""
}

// ready checks what a load balancer sees.
func (d *doctor) ready(ctx context.Context) {
	r, err := getReply(ctx, d.api.URL+"/readyz", 1<<16)
	if err != nil {
		d.say(resultWrong, "ready", "", "%v", err)
		return
	}
	switch first, rest, _ := strings.Cut(r.body, "\n"); {
	case r.code != http.StatusOK:
		d.say(resultWrong, "ready", "load balancers send nothing here meanwhile", "%s: %s", r.status, first)
	case rest != "":
		d.say(resultWarning, "ready", "see 'whence top'", "%s", strings.ReplaceAll(r.body, "\n", "; "))
	default:
		d.say(resultGood, "ready", "", "%s", first)
	}
}

// workers checks the list of workers, which operators see.
func (d *doctor) workers(ctx context.Context) {
	list, err := d.api.Workers(ctx)
	for _, url := range d.admins {
		if err == nil {
			break
		}
		admin := d.api
		admin.URL = strings.TrimRight(url, "/")
		if d.api.OperatorKey != "" {
			admin.Key = ""
		}
		list, err = admin.Workers(ctx)
	}
	if err != nil {
		d.say(resultSkipped, "workers", "give --operator-key, and with --admin-listen its address as --admin", "only operators see the workers (%v)", err)
		return
	}
	peers := map[string]int{} // by model: workers that can continue its answers
	for _, w := range list {
		parts := []string{cmp.Or(w.Name, "a worker") + " at " + w.Target, w.Model, w.Server}
		text := strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), ", ")
		switch {
		case w.Leaving:
			continue
		case w.State != "healthy":
			d.say(resultWrong, "workers", "look at its log", "%s is %s: %s", text, w.State, w.Message)
			continue
		case !w.Generates || w.Continues:
			d.say(resultGood, "workers", "", "%s", text)
		default:
			d.say(resultWarning, "workers", "give the worker the model's files with --model", "%s; it cannot continue answers that another worker began", text)
		}
		if w.Generates && w.Continues {
			peers[w.Model]++
		}
	}
	for model, n := range peers {
		if n == 1 {
			d.say(resultWarning, "workers", "a second worker would take them", "one worker alone answers for %s: if it is lost, its streams are lost", model)
		}
	}
}

// client returns a client of the service that does not retry.
func (d *doctor) client() (*client.Client, error) {
	return client.New(d.api.URL, client.Options{Key: d.api.Credential(), Patience: -1})
}

// request is a question with a long answer.
func (d *doctor) request(limit int) client.Request {
	return client.Request{Model: d.model, MaxTokens: limit, Leave: "linger:30s", Messages: []client.Message{{Role: "user", Content: doctorPrompt}}}
}

// gapEdges are the bounds of the pauses in a delivery report.
var gapEdges = []time.Duration{1e6, 5e6, 10e6, 25e6, 50e6, 100e6, 250e6, 500e6, 1e9}

// answer reads a stream to its end, reports how its events arrived, and checks what the service says of it.
func (d *doctor) answer(ctx context.Context) {
	c, err := d.client()
	if err != nil {
		d.say(resultWrong, "answer", "", "%v", err)
		return
	}
	began := time.Now()
	s, err := c.Stream(ctx, d.request(doctorTokens))
	if err != nil {
		d.say(resultWrong, "answer", "", "%v", err)
		return
	}
	gaps := make([]uint32, len(gapEdges)+1)
	var first, last time.Time
	for e, err := range s.Events(ctx) {
		if err != nil {
			d.say(resultWrong, "answer", "'whence why "+s.ID()+"' has each hop's record", "%v", err)
			return
		}
		if now := time.Now(); e.Kind == client.Delta {
			if first.IsZero() {
				first = now
			} else {
				place := 0
				for place < len(gapEdges) && now.Sub(last) >= gapEdges[place] {
					place++
				}
				gaps[place]++
			}
			last = now
		}
	}
	if first.IsZero() {
		d.say(resultWarning, "answer", "ask another question with 'whence run'", "the answer was empty")
		return
	}
	end := s.Ending()
	text := fmt.Sprintf("first token after %v, %s along %s", first.Sub(began).Round(time.Millisecond), end.Reason, end.Path)
	if end.Usage != nil {
		text = fmt.Sprintf("%d tokens, %s", end.Usage.Completion, text)
	}
	d.say(resultGood, "answer", "", "%s", text)
	d.delivery(ctx, s.ID(), gaps)
}

// delivery reports how the events of a stream arrived, and tells the verdict of the service.
func (d *doctor) delivery(ctx context.Context, id string, gaps []uint32) {
	body, err := json.Marshal(map[string]any{"gaps": gaps, "server": d.server, "via": d.via})
	if err != nil {
		d.say(resultWrong, "delivery", "", "%v", err)
		return
	}
	resp, err := d.post(ctx, "/v1/streams/"+id+"/seen", body)
	if err != nil {
		d.say(resultWrong, "delivery", "", "%v", err)
		return
	}
	defer resp.Body.Close() //nolint:errcheck // read as far as it is used
	var told story.Delivery
	if err := json.NewDecoder(resp.Body).Decode(&told); resp.StatusCode != http.StatusOK || err != nil {
		d.say(resultSkipped, "delivery", "", "the report got %s: several api-services behind one address?", resp.Status)
		return
	}
	switch told.Verdict {
	case "buffered":
		d.say(resultWrong, "delivery", "turn off buffering there (nginx: proxy_buffering off), and compression of event streams", "%s collects tokens: %d events, sent in %d bursts, arrived in %d", d.proxies(), told.Seen.Events, told.Sent.Bursts, told.Seen.Bursts)
	case "flowing":
		d.say(resultGood, "delivery", "", "the events arrived as they were sent: %d in %d bursts", told.Seen.Events, told.Seen.Bursts)
	case "merged":
		d.say(resultGood, "delivery", "", "%d tokens came in %d events: the engine makes several at once", told.Tokens, told.Sent.Events)
	default:
		d.say(resultSkipped, "delivery", "", "the events were too few, or too fast, to tell whether a proxy collects them")
	}
}

// post sends a request with a JSON body, whose answer is read by the caller.
func (d *doctor) post(ctx context.Context, path string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.api.URL+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Leave", "cancel")
	if key := d.api.Credential(); key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	return http.DefaultClient.Do(req)
}

// leave closes the connection of a stream in the middle of its answer, and checks that the engine has
// stopped.
func (d *doctor) leave(ctx context.Context) {
	id, err := d.left(ctx)
	if err != nil {
		d.say(resultWrong, "leave", "", "%v", err)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, doctorPatience)
	defer cancel()
	var told *story.Story
	for tick := time.NewTicker(storyInterval); ; {
		if told, err = d.api.Story(ctx, id); err == nil && told.State == "ended" {
			tick.Stop()
			break
		}
		select {
		case <-tick.C:
			continue
		case <-ctx.Done():
		}
		tick.Stop()
		switch {
		case told != nil:
			d.say(resultWrong, "leave", "let the proxy close its connection when the client does (nginx: proxy_ignore_client_abort off)", "%v after its client had left, the stream still runs: %s does not pass on that clients leave", doctorPatience, d.proxies())
			_ = d.api.Stop(context.WithoutCancel(ctx), id) // it ends by itself otherwise
		default:
			d.say(resultSkipped, "leave", "", "the story of the stream cannot be read: %v", err)
		}
		return
	}
	stopped := told.Hops[0].StopConfirmedMS
	switch {
	case told.Reason == string(client.Completed):
		d.say(resultSkipped, "leave", "", "the answer was complete before its client left")
	case told.Reason != string(client.ClientGone):
		d.say(resultWrong, "leave", "'whence why "+id+"' has each hop's record", "the client left, and the stream ended with %s by %s: %s", told.Reason, told.Origin, told.Message)
	case stopped == nil:
		d.say(resultWrong, "leave", "'whence why "+id+"' has each hop's record", "the client left, and nothing below has confirmed that it stopped")
	default:
		d.say(resultGood, "leave", "", "%s along %s; the engine had stopped %.1f ms later", told.Reason, strings.Join(told.Path, " > "), *stopped)
	}
}

// left requests a stream, leaves it after some events, and returns its id.
func (d *doctor) left(ctx context.Context) (string, error) {
	body, err := json.Marshal(map[string]any{"model": d.model, "stream": true, "max_tokens": longTokens, "messages": []client.Message{{Role: "user", Content: doctorPrompt}}})
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // leaves
	resp, err := d.post(ctx, "/v1/chat/completions", body)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close() //nolint:errcheck // left
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for events := 0; events < eventsKept && lines.Scan(); {
		if bytes.HasPrefix(lines.Bytes(), []byte("data:")) {
			events++
		} else if resp.StatusCode != http.StatusOK {
			return "", fmt.Errorf("%s: %.200s", resp.Status, lines.Text())
		}
	}
	id := resp.Header.Get("X-Request-Id")
	if id == "" {
		return "", errors.New("the answer has no X-Request-Id: a proxy removes it")
	}
	return id, lines.Err()
}

// resume reads a stream with two connections.
func (d *doctor) resume(ctx context.Context) {
	c, err := d.client()
	if err != nil {
		d.say(resultWrong, "resume", "", "%v", err)
		return
	}
	s, err := c.Stream(ctx, d.request(doctorTokens))
	if err != nil {
		d.say(resultWrong, "resume", "", "%v", err)
		return
	}
	read := 0
	for _, err := range s.Events(ctx) {
		if err != nil {
			d.say(resultWrong, "resume", "", "%v", err)
			return
		}
		if read++; read == eventsKept {
			break
		}
	}
	rest := c.Resume(s.ID(), s.Cursor())
	for _, err := range rest.Events(ctx) {
		if err != nil {
			d.say(resultWrong, "resume", "several api-services behind one address need --redis, and one WHENCE_TOKEN_KEY", "a second connection could not read on: %v", err)
			return
		}
	}
	d.say(resultGood, "resume", "", "a second connection read on after %d events, and got the ending", read)
}

// metrics checks a page of metrics.
func (d *doctor) metrics(ctx context.Context, url string) {
	url = strings.TrimRight(url, "/")
	r, err := getReply(ctx, url+"/metrics", maxPage)
	switch {
	case err != nil:
		d.say(resultWrong, "metrics", "", "%v", err)
		return
	case r.code != http.StatusOK || !strings.Contains(r.body, "\nwhence_"):
		d.say(resultWrong, "metrics", "give the address of --admin-listen or --metrics-listen", "%s/metrics has no metrics of this project (%s)", url, r.status)
		return
	}
	links, calls := sumMetric(r.body, "whence_streams_carried_total", `transport="link"`), sumMetric(r.body, "whence_streams_carried_total", `transport="grpc"`)
	if calls > links {
		d.say(resultWarning, "metrics", "open the port of the service below plus ten, or turn links off on both sides with --link=false", "%s: %.0f streams went over gRPC and %.0f over links, which cost less", url, calls, links)
		return
	}
	if refused := sumMetric(r.body, "whence_descriptors_refused_total", ""); refused > 0 {
		d.say(resultWarning, "metrics", "raise the limit of open files (LimitNOFILE=65536)", "%s: %.0f connections were refused for lack of file descriptors", url, refused)
		return
	}
	d.say(resultGood, "metrics", "", "%s has metrics", url)
}

// sumMetric adds the samples of a metric in the text format of Prometheus whose labels contain
// label.
func sumMetric(page, name, label string) (total float64) {
	for line := range strings.SplitSeq(page, "\n") {
		labels, ok := strings.CutPrefix(line, name)
		if !ok || labels == "" || labels[0] != '{' && labels[0] != ' ' || !strings.Contains(labels, label) {
			continue
		}
		if n, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64); err == nil {
			total += n
		}
	}
	return total
}
