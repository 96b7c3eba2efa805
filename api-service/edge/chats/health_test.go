package chats

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/internal/logtest"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/pkg/discover"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// TestOnlyChatServiceThatCannotBeReachedIsLogged covers a single chat-service: there is no other
// choice, but an operator must learn that the chat-service is unreachable.
func TestOnlyChatServiceThatCannotBeReachedIsLogged(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	_ = ln.Close()
	source, err := discover.Parse(addr)
	if err != nil {
		t.Fatal(err)
	}
	log := new(logtest.Log)
	f, err := New("api", source, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { f.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait(); f.Close() })

	polltest.Eventually(t, "it is logged", func() bool { return log.Count("a chat-service cannot be used") > 0 })
	if n := log.Count("target=" + addr); n != 1 || log.Count("chat-service cannot be reached: connection refused") != 1 || log.Count("start chat-service at this address") != 1 {
		t.Errorf("%d lines: %s", n, log)
	}
	if err := f.Ready(t.Context()); streamerr.As(err).Reason != streamerr.PeerLost || strings.Contains(err.Error(), addr) {
		t.Error(err)
	}
	s := serve(t, "chat-service", addr, func(s *service) {
		s.models = []*chatv1.Model{{Id: "good"}, {Id: "m", Problem: "llm-worker/0: the server refuses the key"}}
	})
	polltest.Eventually(t, "that it answers is logged, too", func() bool { return log.Count("chat-service answers") == 1 })
	s.up.SetServingStatus(chatv1.Chat_ServiceDesc.ServiceName, healthpb.HealthCheckResponse_NOT_SERVING)
	polltest.Eventually(t, "the reason of its workers is logged", func() bool { return log.Count("llm-worker/0: the server refuses the key") == 1 })
	if err := f.Ready(t.Context()); streamerr.As(err).Text() != `chat-service takes no streams: no healthy worker for "m": llm-worker/0: the server refuses the key` {
		t.Error(err)
	}
}

// TestChatServiceThatStartsIsNotLoggedAsAProblem: all services may start at the same time, and the
// first probe of api-service may come before chat-service has probed its workers.
func TestChatServiceThatStartsIsNotLoggedAsAProblem(t *testing.T) {
	lost, unready := streamerr.New(streamerr.PeerLost, "refused"), streamerr.New(streamerr.Unavailable, "no healthy worker")
	for name, test := range map[string]struct {
		probes []*streamerr.Error
		want   string // one letter for each probe: a problem, an answer, or nothing
	}{
		"ready at the second probe":   {[]*streamerr.Error{unready, nil, nil}, "---"},
		"not ready":                   {[]*streamerr.Error{unready, unready, unready, nil}, "-p-a"},
		"unreachable, then not ready": {[]*streamerr.Error{lost, unready, nil}, "ppa"},
		"ready, then not":             {[]*streamerr.Error{nil, unready, nil, unready}, "-pap"},
	} {
		var l probeLog
		got := ""
		for _, probe := range test.probes {
			switch recovered, due := l.step(probe); {
			case recovered && due:
				t.Errorf("%s: two lines at once", name)
			case recovered:
				got += "a"
			case due:
				got += "p"
			default:
				got += "-"
			}
		}
		if got != test.want {
			t.Errorf("%s: logged %s, want %s", name, got, test.want)
		}
	}
}
