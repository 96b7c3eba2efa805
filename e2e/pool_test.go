package e2e

import (
	"bytes"
	"testing"

	"github.com/prometheus/common/expfmt"
	prometheus "github.com/prometheus/common/model"

	"github.com/whence-dev/whence/internal/polltest"
)

// TestMemberOfAPoolAnswersAndReportsItsLoad: one process with --pool-metrics is what an endpoint picker
// of an InferencePool expects behind one port: OpenAI's API, which may need a key, and the engine's load
// under vLLM's names, which needs none.
func TestMemberOfAPoolAnswersAndReportsItsLoad(t *testing.T) {
	t.Parallel()
	w := run(t, allInOne, flags{all: []string{"--pool-metrics", "--max-running", "1", "--pace", "0.2", "--headers-after", "10ms", "--drain", "1ms"}})
	for range 3 {
		w.open(t, greedy(long))
	}
	var load map[string]float64
	polltest.Eventually(t, "one stream runs, and two wait", func() bool {
		r := w.get(t, "/metrics")
		parser := expfmt.NewTextParser(prometheus.LegacyValidation) // as the picker does
		families, err := parser.TextToMetricFamilies(bytes.NewReader(r.body))
		if err != nil || r.status != 200 {
			t.Fatalf("status %d, %v: %s", r.status, err, r.body)
		}
		load = map[string]float64{}
		for name, f := range families {
			for _, l := range f.GetMetric()[0].GetLabel() {
				if l.GetName() == "model_name" && l.GetValue() == model {
					load[name] = f.GetMetric()[0].GetGauge().GetValue()
				}
			}
		}
		return load["vllm:num_requests_running"] == 1 && load["vllm:num_requests_waiting"] == 2
	})
	if share := load["vllm:kv_cache_usage_perc"]; share <= 0 || share >= 1 || load["vllm:cache_config_info"] != 1 {
		t.Errorf("%v", load)
	}
}
