package metrics_test

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/whence-dev/whence/pkg/metrics"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// scrapeAllMetrics returns a scrape that contains every metric.
func scrapeAllMetrics(t *testing.T) string {
	t.Helper()
	m := newMetrics(t)
	h := m.Hop("h", metrics.Chat)
	h.Refused(streamerr.Invalid)
	h.Ignored("chat", "prediction")
	h.Unread("<tool_call>")
	h.CallOpened()
	h.CallRefused("total")
	h.Carried()(true)
	h.ConnectionOpened()
	h.ConnectionRefused("total")
	h.Judged("flowing")
	if _, err := h.Workers(func() (int, int) { return 1, 1 }); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Discovery(func() int { return 1 }); err != nil {
		t.Fatal(err)
	}
	h.Reloaded(true)
	m.Recorded("file", true, 1)
	if _, err := h.Load(func() metrics.Load { return metrics.Load{} }); err != nil {
		t.Fatal(err)
	}
	h.Router("kv").Chose(metrics.RolePrefill)
	h.Router("kv").Expect(1)
	h.Router("kv").Retried(streamerr.EngineFailed, true)
	h.Router("kv").Unretried()
	h.Router("kv").Cooled(streamerr.Overloaded)
	h.Router("kv").HandedOver(streamerr.Completed, time.Millisecond)
	h.Dropped("unknown_parent", 1)
	h.Engine().Admitted(1)
	h.Engine().Stepped(1, 1, true)
	h.Engine().Paused(1)
	for _, reason := range []streamerr.Reason{streamerr.Completed, streamerr.ClientGone} {
		s := begin(h)
		s.Started("m", 1)
		s.In(1)
		s.Out(1)
		s.Out(1)
		s.Stopped(1, streamerr.UserStop)
		s.Cached(1)
		s.Left("part")
		s.End(reason, "client")
	}
	return scrape(t, m)
}

func TestNamesKeepPrometheusRules(t *testing.T) {
	problems, err := promlint.New(strings.NewReader(scrapeAllMetrics(t))).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "vllm:") {
			continue // not our names
		}
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

var (
	typed    = regexp.MustCompile(`(?m)^# TYPE (\S+) (\S+)$`)
	sampled  = regexp.MustCompile(`(?m)^(\w+?)(?:_bucket|_sum|_count)?\{(.*)\} `)
	labelled = regexp.MustCompile(`(\w+)="`)
	tableRow = regexp.MustCompile("(?m)^\\| `(\\w+)` \\| (\\w+) \\| [^|]+ \\| ([^|]*) \\|")
)

// TestOperationsListsEveryMetric compares the table in docs/reference/metrics.md with the metrics: names,
// types, labels.
func TestOperationsListsEveryMetric(t *testing.T) {
	text := scrapeAllMetrics(t)
	type entry struct{ kind, labels string }
	measured, listed := map[string]entry{}, map[string]entry{}
	labels := map[string][]string{}
	for _, sample := range sampled.FindAllStringSubmatch(text, -1) {
		for _, l := range labelled.FindAllStringSubmatch(sample[2], -1) {
			if l[1] != "le" && !slices.Contains(labels[sample[1]], l[1]) {
				labels[sample[1]] = append(labels[sample[1]], l[1])
			}
		}
	}
	for _, m := range typed.FindAllStringSubmatch(text, -1) {
		slices.Sort(labels[m[1]])
		measured[m[1]] = entry{m[2], strings.Join(labels[m[1]], ", ")}
	}
	delete(measured, "target_info")
	maps.DeleteFunc(measured, func(name string, _ entry) bool { return strings.HasPrefix(name, "vllm:") }) // aliases
	doc, err := os.ReadFile("../../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range tableRow.FindAllStringSubmatch(string(doc), -1) {
		names := strings.Split(strings.ReplaceAll(strings.TrimSpace(row[3]), "`", ""), ", ")
		slices.Sort(names)
		listed[row[1]] = entry{row[2], strings.Join(names, ", ")}
	}
	for name, want := range measured {
		if got, ok := listed[name]; !ok || got != want {
			t.Errorf("docs/reference/metrics.md describes %s as %+v; it is %+v", name, got, want)
		}
	}
	for name := range listed {
		if _, ok := measured[name]; !ok {
			t.Errorf("docs/reference/metrics.md lists %s, which does not exist", name)
		}
	}
}
