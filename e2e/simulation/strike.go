package simulation

import (
	"context"
	"net/http"
	"time"

	"google.golang.org/grpc"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"

	"github.com/whence-dev/whence/chat-service/choices"
	"github.com/whence-dev/whence/e2e/simulation/check"
	"github.com/whence-dev/whence/e2e/simulation/client"
	"github.com/whence-dev/whence/e2e/simulation/schedule"
	"github.com/whence-dev/whence/e2e/simulation/world"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/rpc/link"
)

// slowest is the maximum delay that a slow link adds to a message.
const slowest = 50 * time.Millisecond

// forever is longer than a schedule.
const forever = time.Hour

// strike injects a fault.
func (p *play) strike(f *schedule.Fault) {
	if p.Closing() {
		return
	}
	struck := &check.Strike{Fault: f, At: time.Now()}
	p.mu.Lock()
	p.strikes = append(p.strikes, struck)
	p.mu.Unlock()
	p.Journal.Note("FAULT %s (stream s%d, chat-service %d, llm-worker %d, for %v, %d messages)", f.Kind, f.Stream, f.Chat, f.Worker, f.For, f.N)
	switch f.Kind {
	case schedule.KillWorker, schedule.DrainWorker:
		p.end(f, p.Workers()[f.Worker].Process, f.Kind == schedule.KillWorker, func() { p.StartWorker(f.Worker) })
	case schedule.KillChat, schedule.DrainChat:
		p.end(f, p.Chats()[f.Chat].Process, f.Kind == schedule.KillChat, func() {
			if err := p.StartChat(f.Chat); err != nil {
				p.Journal.Note("chat-service does not start: %v", err)
			}
		})
	case schedule.DrainEdge:
		p.Edge.Drain()
	case schedule.HurryEdge:
		p.Edge.Hurry()
	case schedule.EngineFails, schedule.EngineHangs, schedule.EngineIsDeaf, schedule.EnginePanics:
		p.Workers()[f.Worker].Break(f.Kind, f.For)
	case schedule.ClientLeaves:
		if v := p.visitOf(f.Stream); v != nil && f.N%2 == 0 {
			v.Leave()
		} else if v != nil {
			v.LeaveGently()
		}
	case schedule.ClientVanishes:
		if v := p.visitOf(f.Stream); v != nil {
			p.Net.Stall(v.Name, world.EdgeAddr, forever)
			v.Leave()
		}
	case schedule.ClientStalls:
		if v := p.visitOf(f.Stream); v != nil {
			v.Stall(f.For)
		}
	case schedule.DeleteStream:
		p.Go(func() { p.remove(struck) })
	case schedule.StopAtChat, schedule.StopAtWorker:
		p.Go(func() { p.stopAt(struck) })
	default:
		p.strikeNet(f)
	}
}

// strikeNet injects a fault of the network between the services.
func (p *play) strikeNet(f *schedule.Fault) {
	edge, chat, worker := world.EdgeAddr, world.ChatAddr(f.Chat), world.WorkerAddr(f.Worker)
	switch f.Kind {
	case schedule.CutChat:
		p.Net.Cut(edge, chat)
	case schedule.CutWorker:
		p.Net.Cut(chat, worker)
	case schedule.CutChatAfter:
		p.Net.CutAfter(edge, chat, f.N)
	case schedule.CutWorkerAfter:
		p.Net.CutAfter(chat, worker, f.N)
	case schedule.StallChat:
		p.Net.Stall(edge, chat, f.For)
	case schedule.StallWorker:
		p.Net.Stall(chat, worker, f.For)
	case schedule.SlowChat:
		p.Net.Slow(edge, chat, min(f.For, slowest))
	case schedule.SlowWorker:
		p.Net.Slow(chat, worker, min(f.For, slowest))
	case schedule.HalfOpenChat:
		p.Net.HalfOpen(edge, chat, f.N%2 == 0)
	case schedule.HalfOpenWorker:
		p.Net.HalfOpen(chat, worker, f.N%2 == 0)
	case schedule.ForgeChat:
		p.Net.Forge(edge, chat, f.N)
	case schedule.ForgeWorker:
		p.Net.Forge(chat, worker, f.N)
	default:
		panic("there is no fault " + f.Kind.String())
	}
}

// remove sends a DELETE for a stream.
func (p *play) remove(s *check.Strike) {
	id := p.id(s.Fault.Stream)
	if id == "" {
		return
	}
	a := p.ask(&client.Request{Method: "DELETE", Path: "/v1/streams/" + id, Window: 64 << 10})
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.Answered = time.Now(); a.Status == http.StatusAccepted {
		s.Accepted = true
	}
}

// stopAt sends an operator's unary Stop.
func (p *play) stopAt(s *check.Strike) {
	id := p.id(s.Fault.Stream)
	if id == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	stop := &streamv1.StopStreamRequest{StreamId: id}
	var err error
	if s.Fault.Kind == schedule.StopAtChat {
		cc := p.Net.Operator().Dial(world.ChatAddr(s.Fault.Chat), link.Options{}, nil)
		defer cc.Close() //nolint:errcheck // never fails
		p.list(ctx, cc)
		_, err = chatv1.NewChatClient(cc).Stop(ctx, &chatv1.StopRequest{Stream: stop})
	} else {
		if n := p.Schedule.Requests[s.Fault.Stream].N; n > 1 {
			stop.StreamId = choices.ID(id, s.Fault.N%n)
		}
		cc := p.Net.Operator().Dial(world.WorkerAddr(s.Fault.Worker), link.Options{}, nil)
		defer cc.Close() //nolint:errcheck // never fails
		_, err = workerv1.NewWorkerClient(cc).Stop(ctx, &workerv1.StopRequest{Stream: stop})
	}
	p.Journal.Note("unary %s of %s: %v", s.Fault.Kind, p.Schedule.Name(s.Fault.Stream), err)
	p.mu.Lock()
	defer p.mu.Unlock()
	s.Answered, s.Accepted = time.Now(), err == nil
}

// list asks a service for the names of its services, as tools do.
func (p *play) list(ctx context.Context, cc grpc.ClientConnInterface) {
	st, err := reflectionpb.NewServerReflectionClient(cc).ServerReflectionInfo(ctx)
	if err != nil {
		return
	}
	_ = st.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}) // Recv returns the error
	_ = st.CloseSend()
	answer, err := st.Recv()
	p.Journal.Note("an operator sees %d services: %v", len(answer.GetListServicesResponse().GetService()), err)
	if err == nil {
		_, _ = st.Recv() // the end
	}
}

// end kills or drains a process, and starts a new one in its place when the fault is over.
func (p *play) end(f *schedule.Fault, old *world.Process, kill bool, restart func()) {
	select {
	case <-old.Ended():
		return
	default:
	}
	if kill {
		old.Kill()
	} else {
		old.Drain()
	}
	if f.For >= 10*time.Second { // for good
		return
	}
	if !old.Replace() {
		return
	}
	p.Go(func() {
		time.Sleep(f.For)
		<-old.Ended()
		if !p.Closing() {
			p.Journal.Note("%s starts again", old.Name)
			restart()
		}
	})
}
