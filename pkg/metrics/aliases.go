package metrics

import (
	"cmp"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/proto"
)

// aliased are the names under which vLLM has some of our metrics. Tools that know only vLLM, such as
// inference-perf and the endpoint picker of llm-d, read those.
var aliased = map[string][]string{
	"whence_streams_running":                      {vllmRunning},
	"whence_streams_queued":                       {vllmWaiting},
	"gen_ai_server_request_duration_seconds":      {"vllm:e2e_request_latency_seconds"},
	"gen_ai_server_time_to_first_token_seconds":   {"vllm:time_to_first_token_seconds"},
	"gen_ai_server_time_per_output_token_seconds": {"vllm:request_time_per_output_token_seconds", "vllm:time_per_output_token_seconds"},
	"whence_queue_duration_seconds":               {"vllm:request_queue_time_seconds"},
}

// An aliaser is a gatherer that adds the metrics of another one under vLLM's names. It also has the
// counters of tokens, the share of the KV cache and its blocks, which are other forms of ours, and the
// model of each engine.
type aliaser struct {
	prometheus.Gatherer
	pool *pool
}

// Gather implements prometheus.Gatherer.
func (a aliaser) Gather() ([]*dto.MetricFamily, error) {
	all, err := a.Gatherer.Gather()
	byName := make(map[string]*dto.MetricFamily, len(all))
	for _, f := range all {
		byName[f.GetName()] = f
	}
	for name, aliases := range aliased {
		for _, alias := range aliases {
			if f := byName[name]; f != nil {
				all = append(all, renamed(f, alias))
			}
		}
	}
	if f := byName["gen_ai_client_token_usage"]; f != nil {
		all = append(all, sums(f, "input", "vllm:prompt_tokens_total"), sums(f, "output", "vllm:generation_tokens_total"))
	}
	if used, limit := byName["whence_kv_used"], byName["whence_kv_limit"]; used != nil && limit != nil {
		all = append(all, share(used, limit, vllmKVUsage))
	}
	all = append(all, a.ofEngines(all)...)
	all = slices.DeleteFunc(all, func(f *dto.MetricFamily) bool { return len(f.GetMetric()) == 0 })
	slices.SortFunc(all, compareNames)
	return all, err
}

func compareNames(a, b *dto.MetricFamily) int { return cmp.Compare(a.GetName(), b.GetName()) }

// ofEngines adds the model's name to the load of each engine, and returns vLLM's description of the
// engines' KV caches.
func (a aliaser) ofEngines(all []*dto.MetricFamily) []*dto.MetricFamily {
	loads := a.pool.loads()
	caches := family(vllmCache, dto.MetricType_GAUGE, "the blocks of the KV cache")
	for hop, l := range loads {
		of := l.cache(l.labels([]*dto.LabelPair{{Name: proto.String("hop"), Value: proto.String(hop)}}))
		if of == nil {
			continue
		}
		sortLabels(of)
		caches.Metric = append(caches.Metric, &dto.Metric{Label: of, Gauge: &dto.Gauge{Value: proto.Float64(1)}})
	}
	for _, f := range all {
		switch f.GetName() {
		case vllmRunning, vllmWaiting, vllmKVUsage:
			for _, m := range f.GetMetric() {
				l := loads[value(m, "hop")]
				m.Label = l.labels(m.GetLabel())
			}
		}
	}
	engines := map[string]bool{}
	for _, l := range loads {
		engines[l.Model] = true
	}
	if lora := a.pool.adapters(engines); len(loads) > 0 && lora != nil {
		return []*dto.MetricFamily{caches, lora}
	}
	return []*dto.MetricFamily{caches}
}

// family returns an empty family with vLLM's name.
func family(name string, kind dto.MetricType, of string) *dto.MetricFamily {
	return &dto.MetricFamily{Name: proto.String(name), Help: proto.String("vLLM's name of " + of + "."), Type: kind.Enum()}
}

// renamed returns the family with vLLM's name and labels. It shares the values.
func renamed(f *dto.MetricFamily, name string) *dto.MetricFamily {
	to := family(name, f.GetType(), f.GetName())
	for _, m := range f.GetMetric() {
		to.Metric = append(to.Metric, &dto.Metric{Label: labels(m, ""), Gauge: m.Gauge, Counter: m.Counter, Histogram: m.Histogram})
	}
	return to
}

// tokenType is the label that separates the tokens of prompts from those of answers.
const tokenType = "gen_ai_token_type"

// sums returns the sums of the histograms with this kind of tokens as counters.
func sums(f *dto.MetricFamily, kind, name string) *dto.MetricFamily {
	to := family(name, dto.MetricType_COUNTER, f.GetName())
	for _, m := range f.GetMetric() {
		if value(m, tokenType) == kind {
			to.Metric = append(to.Metric, &dto.Metric{Label: labels(m, tokenType), Counter: &dto.Counter{Value: proto.Float64(m.GetHistogram().GetSampleSum())}})
		}
	}
	return to
}

// share returns used divided by limit, from 0 to 1, for each hop.
func share(used, limit *dto.MetricFamily, name string) *dto.MetricFamily {
	to := family(name, dto.MetricType_GAUGE, used.GetName()+" / "+limit.GetName())
	for _, m := range used.GetMetric() {
		for _, bound := range limit.GetMetric() {
			if all := bound.GetGauge().GetValue(); all > 0 && value(m, "hop") == value(bound, "hop") {
				to.Metric = append(to.Metric, &dto.Metric{Label: labels(m, ""), Gauge: &dto.Gauge{Value: proto.Float64(m.GetGauge().GetValue() / all)}})
			}
		}
	}
	return to
}

// labels returns the labels of a metric under vLLM's names, without one of them.
func labels(m *dto.Metric, without string) []*dto.LabelPair {
	var all []*dto.LabelPair
	for _, l := range m.GetLabel() {
		switch name := l.GetName(); name {
		case without:
		case "gen_ai_response_model":
			all = append(all, &dto.LabelPair{Name: proto.String("model_name"), Value: l.Value})
		default:
			all = append(all, l)
		}
	}
	sortLabels(all)
	return all
}

func sortLabels(all []*dto.LabelPair) {
	slices.SortFunc(all, func(a, b *dto.LabelPair) int { return cmp.Compare(a.GetName(), b.GetName()) })
}

// value returns the value of a label, or "".
func value(m *dto.Metric, label string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == label {
			return l.GetValue()
		}
	}
	return ""
}
