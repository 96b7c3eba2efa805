package fleet

import (
	"cmp"
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/rpc/link"
)

// ProbeEvery is the time between probes of a worker. A probe is late after probeTimeout.
const (
	ProbeEvery   = time.Second
	probeTimeout = time.Second
	// maxLate is the number of late probes in a row that make a healthy worker unhealthy, unless
	// its streams have messages. Before that its standing is poor: a machine that is busy for a
	// moment is no reason to refuse streams if there is no other worker.
	maxLate = 3
)

// watch probes the worker until ctx is done. changed is called after each change of its health.
func (w *Worker) watch(ctx context.Context, changed func()) {
	tick := time.NewTicker(ProbeEvery)
	defer tick.Stop()
	for {
		w.probe(ctx, changed)
		select {
		case <-tick.C:
		case <-w.probeNow:
		case <-ctx.Done():
			return
		}
	}
}

func (w *Worker) probe(ctx context.Context, changed func()) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	began := time.Now()
	defer w.hooks.take()()
	ours := w.ours.Load()
	w.alive.Store(false)
	info, err := w.ask(ctx)
	if errors.Is(ctx.Err(), context.Canceled) {
		return // watch has ended
	}
	was, isLate := w.info.Load(), status.Code(err) == codes.DeadlineExceeded
	w.late++
	if !isLate || w.alive.Load() { // a worker that sends messages is alive, however late it answers
		w.late = 0
	}
	if was != nil && w.late < maxLate && isLate {
		w.breaker.late()
		return
	}
	w.report(began, info, err)
	if info != nil {
		// The worker's number includes our own streams. Which of them it had counted when they came
		// or went is unknown.
		said := int64(info.GetLoad().GetRunning()) + int64(info.GetLoad().GetQueued())
		w.others.Store(max(0, said-max(ours, w.ours.Load())))
		w.name.Store(&info.Instance)
	}
	w.setInfo(info)
	switch {
	case info != nil && was.GetInstance() != info.GetInstance(): // it was away, or was replaced
		w.breaker.reset()
		w.logged.Clear()
		w.log.Info("worker is healthy", "worker", info.GetInstance(), "target", w.target, "model", info.GetModel(), "engine", info.GetEngine())
		if info.GetModelChecksum() == "" {
			w.log.Warn("worker does not report its tokenizer, so its token ids cannot be checked", "worker", info.GetInstance(), "target", w.target)
		}
		changed()
	case info != nil:
		w.breaker.answered()
	default:
		w.logProblem(err)
		if was != nil {
			changed()
		}
	}
}

// logProblem logs why the worker gets no streams, once for each kind of problem. A worker that has
// never answered gets some time to start.
func (w *Worker) logProblem(err error) {
	is := w.probed.Load()
	if w.unanswered++; is.name != "" {
		w.unanswered = maxLate
	}
	if w.unanswered < maxLate || !w.logged.Due(is.problem) {
		return
	}
	attributes := []any{"worker", is.name, "target", w.target, "problem", is.problem, "then", "it gets no streams, and is probed every second"}
	if _, refused := errors.AsType[refusal](err); refused {
		w.log.Warn("worker is refused", attributes...)
		return
	}
	w.log.Warn("worker is not healthy", attributes...)
}

// A notReadyError is the answer of a worker that takes no streams at present.
type notReadyError struct {
	instance string
	problem  string // in the worker's words
}

func (u notReadyError) Error() string { return u.problem }

// A refusal is the reason for not using a worker that answers.
type refusal struct {
	error
	instance string
}

// ask returns the worker's info, or an error if the worker takes no streams or cannot be used. It asks for
// the health first: until a worker is healthy, its info may lack what it can do.
func (w *Worker) ask(ctx context.Context) (*llmv1.WorkerInfo, error) {
	for again := true; ; again = false {
		health, err := w.health.Check(ctx, &healthpb.HealthCheckRequest{Service: workerv1.Worker_ServiceDesc.ServiceName})
		serving := status.Code(err) == codes.Unimplemented || health.GetStatus() == healthpb.HealthCheckResponse_SERVING // a worker without a health service is healthy if it answers
		if err != nil && !serving {
			return nil, err
		}
		info, err := w.client.Info(ctx, &workerv1.InfoRequest{})
		switch {
		case err != nil:
			return nil, err
		case !serving && info.GetProblem() == "" && again: // its health has changed meanwhile
			continue
		case !serving:
			return nil, notReadyError{info.GetInstance(), cmp.Or(info.GetProblem(), "it takes no streams, and gives no reason")}
		}
		if err := w.check(w, info); err != nil {
			return nil, refusal{err, info.GetInstance()}
		}
		link.Await(ctx, w.conn)
		return info, nil
	}
}
