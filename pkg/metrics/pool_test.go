package metrics_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/whence-dev/whence/pkg/metrics"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// pooled scrapes m as an endpoint picker does, and returns the families.
func pooled(t *testing.T, m *metrics.Metrics) map[string]*dto.MetricFamily {
	t.Helper()
	w := httptest.NewRecorder()
	m.Pool().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// labelsOf returns the labels of the only series of a family.
func labelsOf(t *testing.T, f *dto.MetricFamily) map[string]string {
	t.Helper()
	if len(f.GetMetric()) != 1 {
		t.Fatalf("%s has %d series", f.GetName(), len(f.GetMetric()))
	}
	all := map[string]string{}
	for _, l := range f.GetMetric()[0].GetLabel() {
		all[l.GetName()] = l.GetValue()
	}
	return all
}

// TestPoolIsOneSeriesPerMetric: an endpoint picker reads the first series of a name, so the loads of a
// process are one: streams that wait in its queue count like those that wait in its engine.
func TestPoolIsOneSeriesPerMetric(t *testing.T) {
	m := newMetrics(t)
	end, err := m.Hop("llm-worker/0", metrics.TextCompletion).Load(func() metrics.Load {
		return metrics.Load{Running: 3, Queued: 2, KVUsed: 32, KVLimit: 128, Block: 16, Model: "m"}
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Hop("chat-service", metrics.Chat).Queue(func() (int, int) { return 5, 4 }); err != nil {
		t.Fatal(err)
	}
	families := pooled(t, m)
	for name, want := range map[string]float64{
		"vllm:num_requests_running": 3, "vllm:num_requests_waiting": 6, "vllm:kv_cache_usage_perc": 0.25, "vllm:cache_config_info": 1,
	} {
		f := families[name]
		if labels := labelsOf(t, f); labels["model_name"] != "m" {
			t.Errorf("%s has the labels %v", name, labels)
		}
		if got := f.GetMetric()[0].GetGauge().GetValue(); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if labels := labelsOf(t, families["vllm:cache_config_info"]); labels["block_size"] != "16" || labels["num_gpu_blocks"] != "8" {
		t.Errorf("the KV cache has the labels %v", labels)
	}
	if len(families) != 4 {
		t.Error(families)
	}

	if err := end(); err != nil { // the engine has gone
		t.Fatal(err)
	}
	families = pooled(t, m)
	if f := families["vllm:num_requests_waiting"]; len(labelsOf(t, f)) != 0 || f.GetMetric()[0].GetGauge().GetValue() != 4 || families["vllm:kv_cache_usage_perc"] != nil {
		t.Error(families)
	}
}

// TestUnknownCacheIsLeftOut: a server that does not report its KV cache has no share of it, rather than 0.
func TestUnknownCacheIsLeftOut(t *testing.T) {
	m := newMetrics(t)
	if _, err := m.Hop("w", metrics.TextCompletion).Load(func() metrics.Load { return metrics.Load{Running: 1, Block: 16} }); err != nil {
		t.Fatal(err)
	}
	if families := pooled(t, m); len(families) != 2 {
		t.Error(families)
	}
	if text := scrape(t, m); strings.Contains(text, "vllm:cache_config_info") || strings.Contains(text, "vllm:kv_cache_usage_perc") {
		t.Error(text)
	}
}

// TestPoolNamesTheAdaptersThatAnswer: the models of live streams that are not the engine's. Before the
// first of them nothing is said, and after the last that there are none, because a picker keeps what it
// has read.
func TestPoolNamesTheAdaptersThatAnswer(t *testing.T) {
	m := newMetrics(t)
	if _, err := m.Hop("llm-worker/0", metrics.TextCompletion).Load(func() metrics.Load { return metrics.Load{Model: "m"} }); err != nil {
		t.Fatal(err)
	}
	h := m.Hop("chat-service", metrics.Chat)
	const name = "vllm:lora_requests_info"
	waiting, base := begin(h), begin(h)
	base.Started("m", 1)
	if f := pooled(t, m)[name]; f != nil {
		t.Error(f)
	}
	waiting.Started("poet", 1)
	lawyer := begin(h)
	lawyer.Started("lawyer", 1)
	if labels := labelsOf(t, pooled(t, m)[name]); labels["running_lora_adapters"] != "lawyer,poet" {
		t.Error(labels)
	}
	if text := scrape(t, m); !strings.Contains(text, `vllm:lora_requests_info{running_lora_adapters="lawyer,poet",waiting_lora_adapters=""}`) {
		t.Error(text)
	}
	lawyer.End(streamerr.Completed, "engine")
	waiting.End(streamerr.Completed, "engine")
	f := pooled(t, m)[name]
	if running, said := labelsOf(t, f)["running_lora_adapters"]; !said || running != "" || f.GetMetric()[0].GetGauge().GetValue() <= 0 {
		t.Error(f)
	}
}
