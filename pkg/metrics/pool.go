package metrics

import (
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/proto"
)

// vLLM's names for the load of an engine.
const (
	vllmRunning = "vllm:num_requests_running"
	vllmWaiting = "vllm:num_requests_waiting"
	vllmKVUsage = "vllm:kv_cache_usage_perc"
	vllmCache   = "vllm:cache_config_info"
	vllmLoRA    = "vllm:lora_requests_info"
)

// A pool knows the loads of the engines and the queues of the process, which together are one member
// of a pool of model servers.
type pool struct {
	hops func() []*Hop // of the process

	mu      sync.Mutex // guards the following fields
	engines []*engineLoad
	queues  []*queueLoad
}

type engineLoad struct {
	hop  string
	load func() Load
}

type queueLoad struct{ load func() (running, waiting int) }

func (p *pool) addEngine(e *engineLoad) (remove func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.engines = append(p.engines, e)
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.engines = slices.DeleteFunc(slices.Clone(p.engines), func(other *engineLoad) bool { return other == e })
	}
}

func (p *pool) addQueue(q *queueLoad) (remove func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queues = append(p.queues, q)
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.queues = slices.DeleteFunc(slices.Clone(p.queues), func(other *queueLoad) bool { return other == q })
	}
}

func (p *pool) all() ([]*engineLoad, []*queueLoad) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.engines, p.queues
}

// loads returns the load of each engine by the name of its hop.
func (p *pool) loads() map[string]Load {
	engines, _ := p.all()
	loads := make(map[string]Load, len(engines))
	for _, e := range engines {
		loads[e.hop] = e.load()
	}
	return loads
}

// Gather implements prometheus.Gatherer: one series per metric, because an endpoint picker reads only
// the first. Streams that wait in a queue of the process count like those that wait in the engine.
func (p *pool) Gather() ([]*dto.MetricFamily, error) {
	engines, queues := p.all()
	var sum Load
	for _, e := range engines {
		l := e.load()
		sum.Running, sum.Queued = sum.Running+l.Running, sum.Queued+l.Queued
		sum.KVUsed, sum.KVLimit = sum.KVUsed+l.KVUsed, sum.KVLimit+l.KVLimit
		sum.Model, sum.Block = l.Model, l.Block
	}
	for _, q := range queues {
		_, waiting := q.load()
		sum.Queued += int64(waiting)
	}
	labels := sum.labels(nil)
	all := []*dto.MetricFamily{
		gauge(vllmRunning, "streams that the engine runs", float64(sum.Running), labels),
		gauge(vllmWaiting, "streams that wait for the engine", float64(sum.Queued), labels),
	}
	if sum.KVLimit > 0 {
		all = append(all, gauge(vllmKVUsage, "the used share of the KV cache, from 0 to 1", float64(sum.KVUsed)/float64(sum.KVLimit), labels))
	}
	if info := sum.cache(labels); info != nil {
		all = append(all, gauge(vllmCache, "the blocks of the KV cache", 1, info))
	}
	if lora := p.adapters(map[string]bool{sum.Model: true}); lora != nil {
		all = append(all, lora)
	}
	slices.SortFunc(all, compareNames)
	return all, nil
}

// adapters returns vLLM's description of the adapters that answer now: the models of live streams that
// are not those of the engines. It is nil as long as no adapter has answered; a picker keeps what it has
// read until a later answer says otherwise. The value is the time, as in vLLM.
func (p *pool) adapters(engines map[string]bool) *dto.MetricFamily {
	used, live := map[string]bool{}, map[string]bool{}
	for _, h := range p.hops() {
		h.answers(engines, used, live)
	}
	if len(used) == 0 {
		return nil
	}
	return gauge(vllmLoRA, "the adapters that answer, and the time", float64(time.Now().Unix()), []*dto.LabelPair{
		{Name: proto.String("running_lora_adapters"), Value: proto.String(strings.Join(slices.Sorted(maps.Keys(live)), ","))},
		{Name: proto.String("waiting_lora_adapters"), Value: proto.String("")},
	})
}

// labels adds the label of the engine's model, if it is known.
func (l *Load) labels(to []*dto.LabelPair) []*dto.LabelPair {
	if l.Model == "" {
		return to
	}
	return append(slices.Clip(to), &dto.LabelPair{Name: proto.String("model_name"), Value: proto.String(l.Model)})
}

// cache returns the labels of vLLM's cache_config_info, or nil if the KV cache is unknown.
func (l *Load) cache(more []*dto.LabelPair) []*dto.LabelPair {
	if l.Block <= 0 || l.KVLimit < l.Block {
		return nil
	}
	return append([]*dto.LabelPair{
		{Name: proto.String("block_size"), Value: proto.String(strconv.FormatInt(l.Block, 10))},
		{Name: proto.String("num_gpu_blocks"), Value: proto.String(strconv.FormatInt(l.KVLimit/l.Block, 10))},
	}, more...)
}

// gauge returns a family of one metric with vLLM's name.
func gauge(name, of string, value float64, labels []*dto.LabelPair) *dto.MetricFamily {
	to := family(name, dto.MetricType_GAUGE, of)
	labels = slices.Clone(labels)
	sortLabels(labels)
	to.Metric = []*dto.Metric{{Label: labels, Gauge: &dto.Gauge{Value: proto.Float64(value)}}}
	return to
}

// Pool answers the scrapes of an endpoint picker, which come every 50 ms from some: only the load of
// the process, under vLLM's names, without the work of collecting all other metrics.
func (m *Metrics) Pool() http.Handler {
	return promhttp.HandlerFor(prometheus.GathererFunc(m.pool.Gather), promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes})
}
