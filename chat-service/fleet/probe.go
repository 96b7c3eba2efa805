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
)

// ProbeEvery is how often a worker is asked how it is, probeTimeout how long it may take to answer.
const (
	ProbeEvery   = time.Second
	probeTimeout = time.Second
	// maxLate is how many probes in a row a healthy worker may leave unanswered while none of its streams has a message.
	// Until then it is under suspicion: a machine that is busy for a moment is no reason to refuse streams where there is
	// no other one.
	maxLate = 3
)

// watch asks the worker how it is, again and again, until ctx is done. changed is called when its health has changed.
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
	ours := w.ours.Load()
	w.heard.Store(false)
	info, err := w.ask(ctx)
	if errors.Is(ctx.Err(), context.Canceled) {
		return // nobody needs to know any more
	}
	was, isLate := w.info.Load(), status.Code(err) == codes.DeadlineExceeded
	w.late++
	if !isLate || w.heard.Load() { // a worker that is busy with streams is alive, however late it answers
		w.late = 0
	}
	if was != nil && w.late < maxLate && isLate {
		w.breaker.late()
		return
	}
	w.report(info, err)
	if info != nil {
		// What it says includes our own streams; which of them it had counted when they came or went, nobody knows.
		said := int64(info.GetLoad().GetRunning()) + int64(info.GetLoad().GetQueued())
		w.others.Store(max(0, said-max(ours, w.ours.Load())))
		w.name.Store(&info.Instance)
	}
	w.setInfo(info)
	switch {
	case info != nil && was.GetInstance() != info.GetInstance(): // it was away, or another one has come in its place meanwhile
		w.breaker.reset()
		w.logged.Clear()
		w.log.Info("worker is healthy", "worker", info.GetInstance(), "target", w.target, "model", info.GetModel(), "engine", info.GetEngine())
		if info.GetModelChecksum() == "" {
			w.log.Warn("worker does not say which tokenizer it has, and is taken at its word", "worker", info.GetInstance(), "target", w.target)
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

// logProblem logs why the worker gets no streams, once for each kind of problem. A worker that has never answered has
// a moment to start.
func (w *Worker) logProblem(err error) {
	is := w.probed.Load()
	if w.unheard++; is.name != "" {
		w.unheard = maxLate
	}
	if w.unheard < maxLate || !w.logged.Due(is.problem) {
		return
	}
	attributes := []any{"worker", is.name, "target", w.target, "problem", is.problem, "then", "it gets no streams, and is asked again each second"}
	if _, refused := errors.AsType[refusal](err); refused {
		w.log.Warn("worker is refused", attributes...)
		return
	}
	w.log.Warn("worker is not healthy", attributes...)
}

// A notReadyError is the answer of a worker that takes no streams.
type notReadyError struct {
	instance string
	problem  string // in the worker's words
}

func (u notReadyError) Error() string { return u.problem }

// A refusal is why a worker that answers is not used.
type refusal struct {
	error
	instance string
}

// ask returns what the worker says of itself, if it takes streams and can be used.
func (w *Worker) ask(ctx context.Context) (*llmv1.WorkerInfo, error) {
	info, err := w.client.Info(ctx, &workerv1.InfoRequest{})
	if err != nil {
		return nil, err
	}
	health, err := w.health.Check(ctx, &healthpb.HealthCheckRequest{Service: workerv1.Worker_ServiceDesc.ServiceName})
	switch {
	case status.Code(err) == codes.Unimplemented: // a worker that has no health service is as healthy as it answers
	case err != nil:
		return nil, err
	case health.GetStatus() != healthpb.HealthCheckResponse_SERVING:
		if again, err := w.client.Info(ctx, &workerv1.InfoRequest{}); err == nil && info.GetProblem() == "" {
			info = again // it has become unready since, and says why now
		}
		return nil, notReadyError{info.GetInstance(), cmp.Or(info.GetProblem(), "it takes no streams, and does not say why")}
	}
	if err := w.check(w, info); err != nil {
		return nil, refusal{err, info.GetInstance()}
	}
	return info, nil
}
