package lab

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Samples are the samples of a service's metrics.
type Samples struct {
	Text string // in Prometheus' format
	all  []sample
}

type sample struct {
	name   string
	labels map[string]string
	value  float64
}

// Scrape returns the samples of a service that has --metrics-listen.
func (p *Process) Scrape(ctx context.Context) (s Samples, err error) {
	addr, err := p.Metrics()
	if err != nil {
		return s, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/metrics", nil)
	if err != nil {
		return s, err
	}
	transport := &http.Transport{DisableKeepAlives: true}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return s, err
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return s, err
	}
	if resp.StatusCode != http.StatusOK {
		return s, fmt.Errorf("the metrics of %s: %s: %.200s", p.Name, resp.Status, text)
	}
	return parseSamples(string(text))
}

// parseSamples parses samples. Our label values contain no commas and no quotes.
func parseSamples(text string) (Samples, error) {
	s := Samples{Text: text}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		series, number, _ := strings.Cut(line, " ")
		name, labels, _ := strings.Cut(strings.TrimSuffix(series, "}"), "{")
		one := sample{name: name, labels: map[string]string{}}
		for label := range strings.SplitSeq(labels, ",") {
			if k, v, ok := strings.Cut(label, "="); ok {
				one.labels[k] = strings.Trim(v, `"`)
			}
		}
		var err error
		if one.value, err = strconv.ParseFloat(number, 64); err != nil {
			return s, fmt.Errorf("the sample %q: %w", line, err)
		}
		s.all = append(s.all, one)
	}
	return s, nil
}

// Plus returns the samples of both services.
func (s Samples) Plus(more Samples) Samples {
	return Samples{s.Text + more.Text, slices.Concat(s.all, more.all)}
}

// Sum adds up the samples of a name with all labels, each given as "name=value".
func (s Samples) Sum(name string, labels ...string) float64 {
	total := 0.0
next:
	for _, one := range s.all {
		if one.name != name {
			continue
		}
		for _, label := range labels {
			if k, v, _ := strings.Cut(label, "="); one.labels[k] != v {
				continue next
			}
		}
		total += one.value
	}
	return total
}

// Has reports whether a metric has the name.
func (s Samples) Has(name string) bool {
	for _, one := range s.all {
		if one.name == name {
			return true
		}
	}
	return false
}

// A Usage is the number of goroutines and of open descriptors of a run of a service.
type Usage struct {
	Goroutines, Descriptors int
	run                     *Run
}

// Usage returns the current usage of a service that has --metrics-listen.
func (p *Process) Usage(ctx context.Context) (Usage, error) {
	samples, err := p.Scrape(ctx)
	if err != nil {
		return Usage{}, err
	}
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.Pid()))
	return Usage{int(samples.Sum("go_goroutines")), len(files), p.Run}, err
}

// Since returns the growth since an earlier usage. There is none if the process was started again since.
func (u Usage) Since(earlier Usage) Usage {
	if u.run != earlier.run {
		return Usage{}
	}
	return Usage{u.Goroutines - earlier.Goroutines, u.Descriptors - earlier.Descriptors, u.run}
}
