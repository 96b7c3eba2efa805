package edge

import (
	"context"
	"log/slog"

	"github.com/whence-dev/whence/api-service/edge/chats"
	"github.com/whence-dev/whence/api-service/edge/clientconn"
	"github.com/whence-dev/whence/api-service/edge/heir"
	"github.com/whence-dev/whence/api-service/replay"
	"github.com/whence-dev/whence/api-service/replay/redislog"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// newReplay returns the replay log of c.
func (e *Edge) newReplay(c Config, log *slog.Logger) (replay.Log, error) {
	if c.Redis == "" {
		return replay.NewMemory(c.Replay), nil
	}
	shared := redislog.Config{URL: c.Redis, Name: c.Name, Limits: c.Replay, Lease: c.RedisLease, Log: log, Lost: heir.Lost(c.Name), Fenced: e.fenced, Stopped: e.stopped}
	if c.maxRequest() > 0 {
		shared.TakeOver, shared.Room = e.takeOver, e.room
	}
	return redislog.New(shared)
}

// maxRequest returns the maximum bytes of a request that is kept for other instances; 0 keeps no
// requests.
func (c *Config) maxRequest() int {
	if c.Redis == "" || c.Stage != nil && !c.StagePasses {
		return 0
	}
	return c.TakeoverBytes
}

// takeOver continues the stream of another instance, in a goroutine that Drain waits for.
func (e *Edge) takeOver(o replay.Orphan) {
	e.behind.Go(func() {
		<-e.made
		if e.heir != nil {
			e.heir.Continue(o)
		}
	})
}

// room reports whether there is room for a stream of another instance. There is none until New has
// returned.
func (e *Edge) room() bool {
	select {
	case <-e.made:
		return e.heir != nil && e.hop.Live.Room()
	default:
		return false
	}
}

// resume implements heir.Heir.Run.
func (e *Edge) resume(ctx context.Context, q *heir.Request, o replay.Orphan, engine chats.Engine) error {
	in := q.Call()
	r := &run{edge: e, engine: e.staged(engine)}
	if err := r.keepEvents(in, &o.Head); err != nil {
		return err
	}
	r.naming.epoch = o.Head.Epoch
	ctx, end, err := e.hop.Begin(ctx, &in.Request.StreamId, in.Request.GetClaim().GetOwner(), o.Head.Edge, clientconn.Gone)
	if err != nil {
		return err
	}
	ledger.Of(ctx).Resumed(in.Request.GetClaim())
	ctx = r.enroll(ctx, end, in, q.Policy)
	defer r.close()
	r.absent.Store(true)
	if o.Stop != "" {
		r.control.Stop(heir.StopCause(e.hop.Name, o.Stop))
	}
	r.drive(ctx, in, nil)
	return nil
}

// stopped stops a stream on behalf of another instance.
func (e *Edge) stopped(h replay.Head, cause string) {
	e.stopRun(h, heir.StopCause(e.hop.Name, cause))
}

// fenced ends a stream that another instance has taken over.
func (e *Edge) fenced(h replay.Head) { e.stopRun(h, heir.Fenced(e.hop.Name)) }

func (e *Edge) stopRun(h replay.Head, cause *streamerr.Error) {
	if r := e.runs.find(h.ID); r != nil {
		if _, epoch := r.naming.now(); epoch == h.Epoch {
			r.control.Stop(cause)
		}
	}
}
