package story_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/whence-dev/whence/api-service/story"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func TestQueryChoosesEndings(t *testing.T) {
	stopped := &streamv1.Record{Reason: streamv1.Reason_REASON_USER_STOP, Path: []string{"client", "api-service"}, Workers: []string{"llm-worker/1"}}
	completed := &streamv1.Record{
		Reason: streamv1.Reason_REASON_COMPLETED, Path: []string{"engine", "llm-worker/0", "chat-service", "api-service"}, Workers: []string{"llm-worker/1", "llm-worker/0"},
	}
	if q, err := story.ParseQuery("worker=llm-worker/0"); err != nil || q.Ended || q.Wants(stopped) || !q.Wants(completed) {
		t.Errorf("live streams: %+v, %v", q, err)
	}
	for raw, want := range map[string]struct {
		limit              int
		stopped, completed bool
	}{
		"state=ended":                              {story.DefaultLimit, true, true},
		"limit=7&state=ended&reason=user_stop":     {7, true, false},
		"state=ended&reason=completed&limit=1000":  {story.MaxLimit, false, true},
		"state=ended&hop=llm-worker%2F0":           {story.DefaultLimit, false, true},
		"state=ended&hop=api-service":              {story.DefaultLimit, true, true},
		"state=ended&worker=llm-worker%2F0":        {story.DefaultLimit, false, true},
		"state=ended&worker=llm-worker%2F1":        {story.DefaultLimit, true, true},
		"state=ended&worker=llm-worker":            {story.DefaultLimit, false, false},
		"state=ended&hop=client&reason=completed":  {story.DefaultLimit, false, false},
		"state=ended&hop=nobody+ever+heard+of+it&": {story.DefaultLimit, false, false},
	} {
		q, err := story.ParseQuery(raw)
		if err != nil || !q.Ended || q.Limit != want.limit || q.Wants(stopped) != want.stopped || q.Wants(completed) != want.completed {
			t.Errorf("%s: %+v, %v", raw, q, err)
		}
	}
	for _, raw := range []string{"", "state=live", "page_token=", "page_token=1.a"} {
		if q, err := story.ParseQuery(raw); err != nil || q.Ended || q.After.String() != strings.TrimPrefix(raw, "page_token=") && strings.HasPrefix(raw, "page_token") {
			t.Errorf("%q: %+v, %v", raw, q, err)
		}
	}
}

func TestQueryRefusesUnknownParameters(t *testing.T) {
	for raw, param := range map[string]string{
		"state=stopped": "state", "state=": "state", "state=Ended": "state",
		"state=ended&reason=": "reason", "state=ended&reason=bored": "reason", "state=ended&reason=USER_STOP": "reason", "state=ended&reason=unspecified": "reason",
		"state=ended&limit=0": "limit", "state=ended&limit=1001": "limit", "state=ended&limit=ten": "limit", "state=ended&hop=": "hop", "worker=": "worker",
		"reason=completed": "reason", "state=live&limit=3": "limit", "hop=client": "hop",
		"page_token=nowhere": "page_token", "state=ended&page_token=1.a": "page_token",
		"state=ended&sort=age": "sort", "state=ended&state=ended": "state", strings.Repeat("x", 99): strings.Repeat("x", 32), "%zz": "",
	} {
		_, err := story.ParseQuery(raw)
		if e := streamerr.As(err); e.Reason != streamerr.Invalid || e.Param != param {
			t.Errorf("%q: %v, param %q", raw, err, e.Param)
		}
	}
}

func FuzzQuery(f *testing.F) {
	f.Add("state=ended&reason=completed&limit=7&hop=a")
	f.Fuzz(func(t *testing.T, raw string) {
		q, err := story.ParseQuery(raw)
		if err == nil && (q.Limit < 1 || q.Limit > story.MaxLimit) {
			t.Error(q)
		}
		if err != nil && streamerr.As(err).Reason != streamerr.Invalid {
			t.Error(err)
		}
	})
}

func TestWorkersAreListed(t *testing.T) {
	body := story.Workers([]*chatv1.Worker{
		{
			Target: "h:1", State: chatv1.WorkerState_WORKER_STATE_HEALTHY, Streams: 3, Said: at(0),
			Info: &llmv1.WorkerInfo{
				Instance: "llm-worker/0", Model: "m", Engine: "openai", ContextLength: 512, Continues: true,
				Capabilities: &llmv1.Capabilities{Upstream: "vllm"}, Server: "vLLM 0.32.0",
				Load: &llmv1.Load{Running: 4, Queued: 1, MaxRunning: 8, MaxQueued: 32, KvUsedTokens: 90, KvTotalTokens: 4096, KvCachedTokens: 64},
			},
		},
		{Target: "h:2", State: chatv1.WorkerState_WORKER_STATE_DOWN, Message: "nobody listens"},
	})
	var got struct{ Workers []story.Worker }
	if err := json.Unmarshal(body, &got); err != nil || len(got.Workers) != 2 {
		t.Fatalf("%v: %s", err, body)
	}
	if want := (story.Worker{
		Name: "llm-worker/0", Target: "h:1", State: "healthy", Model: "m", Engine: "openai", Role: "both", Upstream: "vllm", Server: "vLLM 0.32.0", ContextLength: 512, Continues: true, Generates: true,
		Streams: 3, Running: 4, Queued: 1, MaxRunning: 8, MaxQueued: 32, KVUsedTokens: 90, KVTotalTokens: 4096, KVCachedTokens: 64, Said: "2026-01-02T03:04:05Z",
	}); got.Workers[0] != want {
		t.Errorf("%+v", got.Workers[0])
	}
	if want := (story.Worker{Target: "h:2", State: "down", Message: "nobody listens"}); got.Workers[1] != want {
		t.Errorf("%+v", got.Workers[1])
	}
	if got := string(story.Workers(nil)); got != `{"workers":[]}` {
		t.Error(got)
	}
}
