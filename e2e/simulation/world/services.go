package world

import (
	"context"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"google.golang.org/grpc/health"

	"github.com/whence-dev/whence/api-service/edge"
	"github.com/whence-dev/whence/api-service/edge/chats"
	"github.com/whence-dev/whence/api-service/leave"
	"github.com/whence-dev/whence/chat-service/chat"
	"github.com/whence-dev/whence/chat-service/fleet"
	"github.com/whence-dev/whence/chat-service/models"
	"github.com/whence-dev/whence/chat-service/server"
	memory "github.com/whence-dev/whence/e2e/simulation/network"
	"github.com/whence-dev/whence/e2e/simulation/schedule"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/internal/whencetiny"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/inspect"
	"github.com/whence-dev/whence/pkg/rpc/link"
	"github.com/whence-dev/whence/pkg/stream"
)

// A Chat is one run of chat-service.
type Chat struct {
	*Process
	Registry *models.Registry
}

// tiny is the model that all chat-services share. It is immutable.
var tiny = sync.OnceValues(func() (*chat.Model, error) { return chat.Load(whencetiny.FS(), whencetiny.Name, whencetiny.Owner) })

// StartChat starts a chat-service in place of the previous one.
func (w *World) StartChat(i int) error {
	name := "chat-service"
	if w.Schedule.Chats > 1 {
		name = fmt.Sprintf("chat-service/%d", i)
	}
	p, ctx, log := w.process(name, ChatAddr(i))
	p.Hop = &rpc.Hop{Name: name, Live: stream.Set{Max: 100}, Log: log, Observer: &ledger.Ledger{}}
	up := health.NewServer()
	c := &Chat{Process: p, Registry: models.New(name, log, func(healthy bool) {
		inspect.SetHealthy(up, chatv1.Chat_ServiceDesc.ServiceName, healthy)
	})}
	c.Registry.Connect = func(target string) (fleet.Conn, error) {
		return p.Host.Dial(target, link.Options{}, w.upgrading(log)), nil
	}
	c.Registry.Load = func(fs.FS, string, string) (*chat.Model, error) {
		loaded, err := tiny()
		if err != nil {
			return nil, err
		}
		copied := *loaded
		copied.ContextLength = contextLength
		return &copied, nil
	}
	card := models.Card{
		Workers: addresses(schedule.Workers, WorkerAddr), Migrations: server.DefaultMigrations, MigrateAfter: MigrateAfter, FirstTokenMove: MigrateAfter,
		HandoverAbove: server.DefaultHandoverAbove, Timers: rpc.Timers{FirstToken: ChatStall, Stall: ChatStall},
	}
	if w.Schedule.Stays {
		card.Migrations = 0
	}
	if w.Schedule.Queue {
		card.QueueStreams, card.QueueTokens, card.QueueOutage = 16, server.DefaultQueueTokens, time.Second
	}
	if err := c.Registry.Set([]models.Card{card}); err != nil {
		return err
	}
	s := server.New(p.Hop, c.Registry, up, c.Registry.Generate)
	s.Register(p.Host)
	p.Host.Listen()
	w.mu.Lock()
	w.chats[i] = c
	w.mu.Unlock()
	w.running.Go(func() {
		defer close(p.ended)
		<-ctx.Done()
		s.Drain(ctx, Grace)
		p.Host.Stop()
		c.Registry.Close()
	})
	return nil
}

func (w *World) startEdge() error {
	p, ctx, log := w.process(edge.DefaultName, EdgeAddr)
	e, err := edge.New(edge.Config{
		Name: edge.DefaultName, Chat: addresses(w.Schedule.Chats, ChatAddr), MaxBody: 100000, ClientTimeout: ClientTimeout, MaxStreams: 100, ReadTimeout: ReadTimeout,
		WriteTimeout: WriteTimeout, HeadersAfter: HeadersAfter, KeepAlive: KeepAlive, Grace: Grace, LeaveEvents: leave.Policy{Kind: leave.Linger, For: schedule.DefaultLinger},
		Timers: rpc.Timers{FirstToken: EdgeStall, Stall: EdgeStall},
		Connect: func(addr string) (chats.Conn, error) {
			return p.Host.Dial(addr, link.Watchful(), w.upgrading(log)), nil
		},
	}, log)
	if err != nil {
		return err
	}
	p.Hop, w.Edge = e.Hop(), p
	w.server = e.Server(memory.Address)
	if w.Schedule.Secure {
		w.server.TLS, w.secure = certified()
	}
	finding, stop := context.WithCancel(context.WithoutCancel(ctx))
	var find sync.WaitGroup
	find.Go(func() { e.Find(finding) })
	w.running.Go(func() {
		defer close(p.ended)
		<-ctx.Done()
		w.server.End(e.Drain(ctx))
		w.requests.wait()
		stop()
		find.Wait()
		_ = e.Close()
	})
	return nil
}
