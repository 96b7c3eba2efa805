package route

import (
	"testing"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/logtest"
	"github.com/whence-dev/whence/internal/polltest"
)

func TestWorkersReportTheirState(t *testing.T) {
	one, two := serve(t, &fake{name: "worker/1"}, ""), serve(t, &fake{name: "worker/2"}, "")
	one.info.Load = &llmv1.Load{Running: 2, MaxRunning: 8}
	p, _ := dialAll(t, Options{}, new(logtest.Log), one, two)
	told := func(at int) *chatv1.Worker { return p.Workers()[at] }
	polltest.Eventually(t, "both are healthy", func() bool {
		return told(0).GetState() == chatv1.WorkerState_WORKER_STATE_HEALTHY && told(1).GetState() == chatv1.WorkerState_WORKER_STATE_HEALTHY
	})
	if w := told(0); w.GetTarget() != one.addr || w.GetInfo().GetInstance() != "worker/1" || w.GetInfo().GetLoad().GetRunning() != 2 || w.GetSaid() == nil || w.GetMessage() != "" {
		t.Error(w)
	}

	two.up.SetServingStatus(workerv1.Worker_ServiceDesc.ServiceName, healthpb.HealthCheckResponse_NOT_SERVING)
	p.Members()[1].Probe()
	polltest.Eventually(t, "the one that drains is down", func() bool { return told(1).GetState() == chatv1.WorkerState_WORKER_STATE_DOWN })
	if w := told(1); w.GetMessage() != "it takes no streams, and gives no reason" || w.GetInfo().GetInstance() != "worker/2" {
		t.Errorf("the last info of the worker is lost: %v", w)
	}
	if w := told(0); w.GetState() != chatv1.WorkerState_WORKER_STATE_HEALTHY {
		t.Error(w)
	}
}
