package command

import (
	"net/http"
	"strings"
	"testing"
)

// TestDoctorNamesWhatIsWrong answers a doctor as a service with many faults does.
func TestDoctorNamesWhatIsWrong(t *testing.T) {
	answers := map[string]struct {
		status int
		body   string
	}{
		"/version":             {200, `{"version":"v0.0.1"}`},
		"/v1/models":           {200, `{"data":[{"id":"vectors","generates":false},{"id":"m"}]}`},
		"/readyz":              {200, "1 of 2 workers available\ngpu-1: refused the connection\n"},
		"/v1/workers":          {200, `{"workers":[{"name":"gpu-0","target":"10.0.0.1:8082","state":"healthy","model":"m","generates":true,"continues":true,"server":"vLLM 0.32"},{"name":"gpu-1","target":"10.0.0.2:8082","state":"down","message":"refused the connection"},{"name":"old","state":"down","leaving":true}]}`},
		"/v1/streams":          {503, `{"error":{"message":"nobody is there","whence":{"reason":"unavailable","path":["chat-service"]}}}`},
		"/v1/chat/completions": {200, "data: {}\n\ndata: {}\n\ndata: {}\n\n"},
		"/v1/streams/s":        {200, `{"id":"s","state":"ended","reason":"internal","origin":"chat-service","message":"a bug","hops":[{}]}`},
		"/metrics":             {200, "# HELP\nwhence_streams_carried_total{hop=\"a\",transport=\"grpc\"} 7\nwhence_streams_carried_total{hop=\"a\",transport=\"link\"} 2\n"},
	}
	serve := func(w http.ResponseWriter, r *http.Request) {
		a, ok := answers[r.URL.Path]
		if !ok {
			a.status = http.StatusNotFound
		}
		w.Header().Set("X-Request-Id", "s")
		w.Header().Set("Date", "Thu, 01 Jan 2026 00:00:00 GMT")
		w.WriteHeader(a.status)
		_, _ = w.Write([]byte(a.body))
	}
	out, errs, status := executeStreams(t, Doctor(), serve)
	if status != 1 {
		t.Errorf("status %d, %s", status, errs)
	}
	for _, want := range []string{
		"warning  version    the service is v0.0.1", "warning  clock ", "ok       models     vectors, m\n", "warning  ready      1 of 2 workers available; gpu-1: refused the connection\n",
		"ok       workers    gpu-0 at 10.0.0.1:8082, m, vLLM 0.32\n", "wrong    workers    gpu-1 at 10.0.0.2:8082 is down: refused the connection\n", "one worker alone answers for m",
		"wrong    answer     ", "nobody is there", "wrong    leave      the client left, and the stream ended with internal by chat-service: a bug\n", "wrong    resume     ",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("there is no %q in:\n%s", want, out)
		}
	}
	if strings.Contains(out, "old") {
		t.Error("a worker that leaves is missed")
	}
	for body, want := range map[string]string{`{"version":`: "is no api-service", `{"version":"v0.0.1"}`: "give a key with --key or WHENCE_KEY"} {
		out, _, status := executeStreams(t, Doctor(), func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/version" {
				w.WriteHeader(http.StatusUnauthorized)
			}
			_, _ = w.Write([]byte(body))
		})
		if status != 1 || !strings.Contains(out, want) {
			t.Errorf("%s: status %d, %s", body, status, out)
		}
	}
}
