package overhttp

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/whence-dev/whence/internal/leaktest"
	"github.com/whence-dev/whence/llm-worker/engine/beside"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

const vllmPage = `# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="org/tiny"} 7.0
vllm:num_requests_running{engine="1",model_name="org/tiny"} 2.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="org/tiny"} 3.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="org/tiny"} 0.5
vllm:kv_cache_usage_perc{engine="1",model_name="org/tiny"} 0.25
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="16",cache_dtype="auto",engine="0",num_gpu_blocks="%s"} 1.0
vllm:cache_config_info{block_size="16",cache_dtype="auto",engine="1",num_gpu_blocks="100"} 1.0
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{le="0.001"} 0.0
vllm:time_to_first_token_seconds_bucket{le="+Inf"} 4.0
vllm:time_to_first_token_seconds_count 4.0
vllm:time_to_first_token_seconds_sum 2.5
`

// ranksPage is a part of what vLLM 0.32 with two data-parallel ranks writes.
const ranksPage = `# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="whence-tiny"} 4.0
vllm:generation_tokens_total{engine="1",model_name="whence-tiny"} 2.0
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{engine="0",model_name="whence-tiny"} 3.0
vllm:prompt_tokens_total{engine="1",model_name="whence-tiny"} 10.0
vllm:num_requests_running{engine="0",model_name="whence-tiny"} 1.0
vllm:num_requests_running{engine="1",model_name="whence-tiny"} 0.0
vllm:kv_cache_usage_perc{engine="0",model_name="whence-tiny"} 0.5
vllm:kv_cache_usage_perc{engine="1",model_name="whence-tiny"} 0.0
vllm:engine_sleep_state{engine="0",model_name="whence-tiny",sleep_state="awake"} 1.0
vllm:engine_sleep_state{engine="0",model_name="whence-tiny",sleep_state="weights_offloaded"} 0.0
vllm:engine_sleep_state{engine="1",model_name="whence-tiny",sleep_state="awake"} 1.0
vllm:cache_config_info{block_size="32",engine="0",kv_cache_size_tokens="838848",num_gpu_blocks="52428"} 1.0
vllm:cache_config_info{block_size="32",engine="1",kv_cache_size_tokens="838848",num_gpu_blocks="52428"} 1.0
`

func TestLoadReadsMetrics(t *testing.T) {
	for name, test := range map[string]struct {
		names LoadMetrics
		rank  string
		page  string
		want  *beside.ServerLoad
	}{
		"vLLM":                         {VLLMMetrics, "", fmt.Sprintf(vllmPage, "300"), &beside.ServerLoad{Running: 9, Waiting: 3, KVUsed: 2400, KVTotal: 6400}},
		"vLLM, its cache not told":     {VLLMMetrics, "", fmt.Sprintf(vllmPage, "None"), &beside.ServerLoad{Running: 9, Waiting: 3}},
		"vLLM with data parallelism":   {VLLMMetrics, "", ranksPage, &beside.ServerLoad{Running: 1, KVUsed: 419424, KVTotal: 1677696, Done: 19}},
		"a rank of it":                 {VLLMMetrics, "1", ranksPage, &beside.ServerLoad{KVTotal: 838848, Done: 12}},
		"vLLM sleeps":                  {VLLMMetrics, "", strings.ReplaceAll(ranksPage, `"awake"} 1`, `"awake"} 0`), &beside.ServerLoad{Running: 1, KVUsed: 419424, KVTotal: 1677696, Asleep: true, Done: 19}},
		"SGLang":                       {SGLangMetrics, "", "sglang:num_running_reqs{x=\"1\"} 4\nsglang:num_queue_reqs 1\nsglang:num_used_tokens 120\nsglang:max_total_num_tokens 4000\n", &beside.ServerLoad{Running: 4, Waiting: 1, KVUsed: 120, KVTotal: 4000}},
		"a rank of vLLM":               {VLLMMetrics, "1", fmt.Sprintf(vllmPage, "300"), &beside.ServerLoad{Running: 2, KVUsed: 400, KVTotal: 1600}},
		"a rank that is not there":     {VLLMMetrics, "2", fmt.Sprintf(vllmPage, "300"), nil},
		"a rank of SGLang":             {SGLangMetrics, "1", "sglang:num_running_reqs{dp_rank=\"0\"} 4\nsglang:num_running_reqs{dp_rank=\"1\"} 3\nsglang:num_queue_reqs{dp_rank=\"1\"} 1\nsglang:num_used_tokens{dp_rank=\"0\"} 120\nsglang:num_used_tokens{dp_rank=\"1\"} 80\nsglang:max_total_num_tokens{dp_rank=\"1\"} 4000\n", &beside.ServerLoad{Running: 3, Waiting: 1, KVUsed: 80, KVTotal: 4000}},
		"llama.cpp":                    {LlamaCPPMetrics, "", "# TYPE llamacpp:requests_processing gauge\nllamacpp:requests_processing 2\nllamacpp:requests_deferred 5\n# TYPE llamacpp:n_decode_total counter\nllamacpp:n_decode_total 41\n", &beside.ServerLoad{Running: 2, Waiting: 5, Done: 41}},
		"numbers that are none":        {LlamaCPPMetrics, "", "llamacpp:requests_processing NaN\nllamacpp:requests_deferred -3\n", &beside.ServerLoad{}},
		"metrics of another server":    {VLLMMetrics, "", "up 1\n", nil},
		"a page that is no metrics":    {VLLMMetrics, "", "<html>", nil},
		"a page that is not there":     {VLLMMetrics, "", "", nil},
		"one more than can be counted": {LlamaCPPMetrics, "", "llamacpp:requests_processing 1e300\n", &beside.ServerLoad{Running: 1 << 40}},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/metrics" || test.page == "" {
				http.NotFound(rw, r)
				return
			}
			_, _ = fmt.Fprint(rw, test.page)
		}))
		client := New(server.URL, "")
		var rank beside.Rank
		if err := rank.Set(test.rank); err != nil {
			t.Fatal(err)
		}
		client.Pin(rank)
		got, err := client.Load(t.Context(), test.names)
		if (err == nil) != (test.want != nil) || err == nil && *got != *test.want {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		server.Close()
	}
}
