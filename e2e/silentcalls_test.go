package e2e

import (
	"fmt"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/polltest"
)

// TestCallsThatNeverSendTheirRequestEnd opens calls on both gRPC ports of the running services and
// sends nothing on them. All calls end with DEADLINE_EXCEEDED, requests are answered meanwhile, and
// the metrics count the calls.
func TestCallsThatNeverSendTheirRequestEnd(t *testing.T) {
	t.Parallel()
	const n = 1000
	w := run(t, separate, flags{all: measured, chat: []string{"--first-message-timeout", "2s"}, worker: []string{"--first-message-timeout", "2s"}})
	ports := map[string]struct{ addr, method string }{
		chatService: {w.chat, chatv1.Chat_Generate_FullMethodName},
		llmWorker:   {w.worker, workerv1.Worker_Generate_FullMethodName},
	}
	bidi := &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}
	calls := map[string][]grpc.ClientStream{}
	for service, port := range ports {
		cc := dialGRPC(t, port.addr)
		for range n {
			st, err := cc.NewStream(t.Context(), bidi, port.method)
			if err != nil {
				t.Fatal(err)
			}
			calls[service] = append(calls[service], st)
		}
	}
	if got := w.answer(t, greedy(short)); got == "" {
		t.Error("a request was not answered during the silent calls")
	}
	for service, opened := range calls {
		for i, st := range opened {
			var out chatv1.GenerateResponse
			if err := st.RecvMsg(&out); status.Code(err) != codes.DeadlineExceeded {
				t.Fatalf("call %d of %s ended with %v", i, service, err)
			}
		}
	}
	for service := range ports {
		p := w.processes[service]
		polltest.Eventually(t, fmt.Sprint(service, " has no calls that wait"), func() bool { return p.scrape(t).Sum("whence_calls_waiting") == 0 })
		if got := p.scrape(t).Sum("whence_calls_refused_total", "limit=first_message"); got != n {
			t.Errorf("%s counts %v calls without a first message, want %d", service, got, n)
		}
	}
}
