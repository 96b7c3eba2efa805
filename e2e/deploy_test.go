package e2e

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/whence-dev/whence/lab"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// used returns a scrape of a process in which every measured event has happened.
func used(t *testing.T) lab.Samples {
	t.Helper()
	w := run(t, allInOne, flags{all: measured, worker: []string{"--pace", "100"}})
	w.answer(t, greedy(short, "max_tokens", 5))
	if resp, err := w.http.Get(w.url("/nothing")); err != nil || readAll(t, resp).status != http.StatusNotFound {
		t.Errorf("/nothing: %v", err)
	}
	l := w.open(t, greedy(long)).begun(t)
	l.close()
	w.clientGone(t, l.id)
	return w.scrape(t)
}

// prometheusOwn are metrics that Prometheus itself adds to every scrape.
var prometheusOwn = []string{"up", "scrape_duration_seconds"}

var (
	quoted   = regexp.MustCompile(`"[^"]*"`)
	selected = regexp.MustCompile(`\b((?:whence|gen_ai|go|process|scrape)_\w+|up)\b(\{[^}]*\})?`)
	grouped  = regexp.MustCompile(`\b(?:by|ignoring|on|without) \([^)]*\)`)
	matched  = regexp.MustCompile(`reason(?:=|!=|=~|!~)"([^"]*)"`)
)

// refersTo checks that a PromQL expression names at least one of our metrics, and only existing
// ones.
func refersTo(t *testing.T, s lab.Samples, where, expr string) {
	t.Helper()
	for _, m := range matched.FindAllStringSubmatch(expr, -1) {
		for word := range strings.SplitSeq(m[1], "|") {
			if streamerr.ParseReason(word) == streamerr.Unspecified {
				t.Errorf("%s: there is no reason %q", where, word)
			}
		}
	}
	bare := grouped.ReplaceAllString(quoted.ReplaceAllString(expr, `""`), "")
	names := selected.FindAllStringSubmatch(bare, -1)
	if len(names) == 0 {
		t.Errorf("%s: no metric of ours in %s", where, expr)
	}
	for _, name := range names {
		if !s.Has(name[1]) && !strings.Contains(" "+strings.Join(prometheusOwn, " ")+" ", " "+name[1]+" ") {
			t.Errorf("%s: no scrape has %s", where, name[1])
		}
	}
}

// TestAlertsAndDashboardsNameExistingMetrics compares the files of deploy with a scrape.
func TestAlertsAndDashboardsNameExistingMetrics(t *testing.T) {
	t.Parallel()
	s := used(t)

	var rules struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string }
		}
	}
	b, err := os.ReadFile("../deploy/prometheus/rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(b, &rules); err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, group := range rules.Groups {
		for _, rule := range group.Rules {
			refersTo(t, s, rule.Alert, rule.Expr)
			found++
		}
	}
	if found == 0 {
		t.Error("there are no alerts")
	}

	boards, err := filepath.Glob("../deploy/grafana/*.json")
	if err != nil || len(boards) == 0 {
		t.Fatalf("there are no dashboards: %v", err)
	}
	for _, file := range boards {
		var board struct {
			Panels []struct {
				Type, Title string
				Targets     []struct{ Expr string }
			}
		}
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(b, &board); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for _, panel := range board.Panels {
			if panel.Type != "row" && len(panel.Targets) == 0 {
				t.Errorf("%s: %s shows nothing", file, panel.Title)
			}
			for _, target := range panel.Targets {
				refersTo(t, s, panel.Title, target.Expr)
			}
		}
	}
}

// vllmMetric matches the lines of a metric that has the name vLLM gives it, with a colon, which
// promtool wants in recorded series only.
var vllmMetric = regexp.MustCompile(`(?m)^(# (HELP|TYPE) )?vllm:.*\n`)

// TestPromtoolFindsNoFault checks a scrape, the rules, their tests, and the example configuration.
func TestPromtoolFindsNoFault(t *testing.T) {
	t.Parallel()
	promtool := tool(t, "promtool")
	s := used(t)
	for _, args := range [][]string{
		{"check", "metrics"}, {"check", "rules", "rules.yml"}, {"test", "rules", "rules_test.yml"}, {"check", "config", "prometheus.yml"},
	} {
		cmd := exec.Command(promtool, args...)
		cmd.Dir = filepath.Join("..", "deploy", "prometheus")
		cmd.Stdin = strings.NewReader(vllmMetric.ReplaceAllString(s.Text, ""))
		if out, err := cmd.CombinedOutput(); err != nil || args[1] == "metrics" && len(bytes.TrimSpace(out)) > 0 {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
}
