package overhttp

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/whence-dev/whence/llm-worker/engine/beside"
)

// maxMetrics bounds a page of metrics, in bytes. vLLM's histograms take some hundred kilobytes.
const maxMetrics = 4 << 20

// LoadMetrics names the metrics of a server that make up its load. An empty name means that the server
// has none.
type LoadMetrics struct {
	Running, Waiting string   // requests
	KVUsed, KVTotal  string   // tokens
	KVUsage          string   // of the KV cache, from 0 to 1
	CacheConfig      string   // a gauge with the label kv_cache_size_tokens, or block_size and num_gpu_blocks
	Sleep            string   // a gauge whose sample with the label sleep_state="awake" is 0 while the server sleeps
	Rank             string   // the label that has the data-parallel rank
	Done             []string // counters that grow while the server works
}

// The metrics of known servers. vLLM always has them, SGLang with --enable-metrics, and llama.cpp's server with
// --metrics.
var (
	VLLMMetrics = LoadMetrics{
		Running: "vllm:num_requests_running", Waiting: "vllm:num_requests_waiting",
		KVUsage: "vllm:kv_cache_usage_perc", CacheConfig: "vllm:cache_config_info", Sleep: "vllm:engine_sleep_state", Rank: "engine",
		Done: []string{"vllm:generation_tokens_total", "vllm:prompt_tokens_total"},
	}
	SGLangMetrics = LoadMetrics{
		Running: "sglang:num_running_reqs", Waiting: "sglang:num_queue_reqs", KVUsed: "sglang:num_used_tokens", KVTotal: "sglang:max_total_num_tokens",
		Rank: "dp_rank", Done: []string{"sglang:generation_tokens_total", "sglang:prompt_tokens_total"},
	}
	LlamaCPPMetrics = LoadMetrics{Running: "llamacpp:requests_processing", Waiting: "llamacpp:requests_deferred", Done: []string{"llamacpp:n_decode_total"}}
)

// errNoMetrics is the error for a page without the number of running requests.
var errNoMetrics = errors.New("the metrics do not have the number of running requests")

// Load reads the server's load from GET /metrics: the sums over data-parallel ranks, or the load of
// the rank that the client is pinned to.
func (c *Client) Load(ctx context.Context, names LoadMetrics) (*beside.ServerLoad, error) {
	var families map[string]*dto.MetricFamily
	err := c.call(ctx, http.MethodGet, "/metrics", nil, func(body io.Reader) (err error) {
		families, err = ReadMetrics(body)
		return err
	})
	if err != nil {
		return nil, err
	}
	if c.rank != (beside.Rank{}) {
		for _, family := range families {
			family.Metric = slices.DeleteFunc(family.GetMetric(), func(m *dto.Metric) bool {
				return Label(m, names.Rank) != c.rank.String()
			})
		}
	}
	running, ok := sum(families[names.Running])
	if !ok {
		return nil, errNoMetrics
	}
	waiting, _ := sum(families[names.Waiting])
	load := &beside.ServerLoad{Running: count(running), Waiting: count(waiting), Asleep: asleep(families[names.Sleep])}
	for _, name := range names.Done {
		done, _ := sum(families[name])
		load.Done += done
	}
	used, _ := sum(families[names.KVUsed])
	total, _ := sum(families[names.KVTotal])
	load.KVUsed, load.KVTotal = uint64(count(used)), uint64(count(total))
	if size := cacheSize(families[names.CacheConfig]); size > 0 {
		usage, _ := sum(families[names.KVUsage])
		share := usage / float64(max(1, len(families[names.KVUsage].GetMetric())))
		load.KVUsed, load.KVTotal = min(uint64(count(share*float64(size))), size), size
	}
	return load, nil
}

// ReadMetrics reads a page of metrics, up to maxMetrics bytes.
func ReadMetrics(page io.Reader) (map[string]*dto.MetricFamily, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(io.LimitReader(page, maxMetrics))
}

// sum returns the sum of the values of a gauge or counter; ok is false if there is no such metric.
func sum(family *dto.MetricFamily) (total float64, ok bool) {
	for _, m := range family.GetMetric() {
		total += m.GetGauge().GetValue() + m.GetCounter().GetValue() + m.GetUntyped().GetValue()
		ok = true
	}
	return total, ok
}

// count converts a gauge to a number of things.
func count(value float64) int {
	const most = 1 << 40
	if !(value > 0) { // also NaN
		return 0
	}
	return int(min(value, most))
}

// cacheSize returns the tokens of all KV caches; 0 if they are not reported. A newer vLLM reports the size of
// each rank's cache. The product of its other labels is that size only without data parallelism:
// num_gpu_blocks is then the sum of all ranks, on the line of each.
func cacheSize(config *dto.MetricFamily) (tokens uint64) {
	for _, m := range config.GetMetric() {
		size := Number(m, "kv_cache_size_tokens")
		if size == 0 {
			size = Number(m, "block_size") * Number(m, "num_gpu_blocks")
		}
		if size == 0 {
			return 0
		}
		tokens += size
	}
	return tokens
}

// Number returns the value of a label as a number; 0 if it is absent, or None.
func Number(m *dto.Metric, name string) uint64 {
	n, err := strconv.ParseUint(Label(m, name), 10, 31)
	if err != nil {
		return 0
	}
	return n
}

// Label returns the value of a label; "" if it is absent.
func Label(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// asleep reports whether a rank of the server sleeps.
func asleep(state *dto.MetricFamily) bool {
	return slices.ContainsFunc(state.GetMetric(), func(m *dto.Metric) bool {
		return Label(m, "sleep_state") == "awake" && m.GetGauge().GetValue()+m.GetUntyped().GetValue() == 0
	})
}
