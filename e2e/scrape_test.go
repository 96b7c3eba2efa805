package e2e

import (
	"bufio"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// measured makes every service answer scrapes.
var measured = []string{"--metrics-listen", "127.0.0.1:0"}

// A scrape holds the samples of a service's metrics.
type scrape struct {
	text    string
	samples []sample
}

type sample struct {
	name   string
	labels map[string]string
	value  float64
}

// metrics returns the address on which a process answers scrapes.
func (p *process) metrics(t *testing.T) string {
	t.Helper()
	return p.logged(t, `"serving metrics" in its log`, func(r record) bool { return r.Msg == "serving metrics" }).Addr
}

// scrape asks every process once.
func (w *whence) scrape(t *testing.T) scrape {
	t.Helper()
	var all scrape
	for _, p := range w.all() {
		s := w.scrapeOf(t, p)
		all.text += s.text
		all.samples = append(all.samples, s.samples...)
	}
	return all
}

// scrapeOf asks one process.
func (w *whence) scrapeOf(t *testing.T, p *process) (s scrape) {
	t.Helper()
	resp, err := w.http.Get("http://" + p.metrics(t) + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	s.text = string(readAll(t, resp).body)
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("status %d: %s", resp.StatusCode, s.text)
	}
	for lines := bufio.NewScanner(strings.NewReader(s.text)); lines.Scan(); {
		if line := lines.Text(); line != "" && !strings.HasPrefix(line, "#") {
			s.samples = append(s.samples, parseSample(t, line))
		}
	}
	return s
}

// parseSample reads a line such as `name{a="b"} 3`. Our label values contain no commas or quotes.
func parseSample(t *testing.T, line string) sample {
	t.Helper()
	series, number, _ := strings.Cut(line, " ")
	name, labels, _ := strings.Cut(strings.TrimSuffix(series, "}"), "{")
	s := sample{name: name, labels: map[string]string{}}
	for label := range strings.SplitSeq(labels, ",") {
		if k, v, ok := strings.Cut(label, "="); ok {
			s.labels[k] = strings.Trim(v, `"`)
		}
	}
	var err error
	if s.value, err = strconv.ParseFloat(number, 64); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	return s
}

// sum adds up the samples of a name with all labels, each given as "name=value".
func (s scrape) sum(name string, labels ...string) float64 {
	total := 0.0
next:
	for _, sample := range s.samples {
		if sample.name != name {
			continue
		}
		for _, label := range labels {
			if k, v, _ := strings.Cut(label, "="); sample.labels[k] != v {
				continue next
			}
		}
		total += sample.value
	}
	return total
}

// has reports whether a metric has the name.
func (s scrape) has(name string) bool {
	for _, sample := range s.samples {
		if sample.name == name {
			return true
		}
	}
	return false
}
