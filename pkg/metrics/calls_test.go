package metrics_test

import (
	"testing"

	"github.com/whence-dev/whence/pkg/metrics"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func TestUnknownOperationIsCountedAsOther(t *testing.T) {
	m := newMetrics(t)
	for hop, does := range map[string]metrics.Operation{"by stream": metrics.Chat, "by hop": "juggle"} {
		s := begin(m.Hop(hop, does))
		if hop == "by stream" {
			s.Does("juggle")
		}
		s.Out(1)
		s.Started("m", 1)
		s.Out(1)
		s.End(streamerr.Completed, "engine")
		want := `gen_ai_server_request_duration_seconds_count{gen_ai_operation_name="other",gen_ai_provider_name="whence",gen_ai_response_model="m",hop="` + hop + `"}`
		if got := value(t, scrape(t, m), want); got != 1 {
			t.Errorf("%s: %v streams are counted as other\n%s", hop, got, scrape(t, m))
		}
	}
}

func TestCallsAreCounted(t *testing.T) {
	m := newMetrics(t)
	h := m.Hop("h", metrics.Chat)
	if got := value(t, scrape(t, m), `whence_calls_open{hop="h"}`); got != -1 {
		t.Errorf("a hop that has served no call has %v open calls", got)
	}
	for range 3 {
		h.CallOpened()
	}
	h.CallBegun()
	h.CallRefused("total")
	h.CallClosed(false)
	text := scrape(t, m)
	for series, want := range map[string]float64{
		`whence_calls_open{hop="h"}`:                        2,
		`whence_calls_waiting{hop="h"}`:                     1,
		`whence_calls_refused_total{hop="h",limit="total"}`: 1,
	} {
		if got := value(t, text, series); got != want {
			t.Errorf("%s is %v, want %v", series, got, want)
		}
	}
}
