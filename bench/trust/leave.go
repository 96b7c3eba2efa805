package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/whence-dev/whence/bench/trust/reader"
	"github.com/whence-dev/whence/bench/trust/trial"
	"github.com/whence-dev/whence/lab"
)

var one = lab.Layout{Workers: 1, Chats: 1, Edges: 1}

var clientRows = []trial.Row{
	{Name: "client closes its connection", Layout: one, Tokens: 600, Spared: true, Play: leavers{by: closing, stage: answering}.play},
	{Name: "client resets its connection", Layout: one, Tokens: 600, Spared: true, Play: leavers{by: resetting, stage: answering}.play},
	{Name: "client's process is killed", Layout: one, Tokens: 600, Spared: true, Play: leavers{by: dying, stage: answering}.play},
	{Name: "client closes before the first token", Layout: one, Prepare: full, Tokens: 600, Spared: true, Play: leavers{by: closing, stage: queued}.play},
	{Name: "client closes while its prompt is read", Layout: slowPrefill, Tokens: 600, Spared: true, Play: leavers{by: closing, stage: prefilling}.play},
}

// full lets the worker run only the streams of the row, so that further ones are queued.
func full(t *trial.Trial, l *lab.Layout) error {
	l.Worker = append(slices.Clone(l.Worker), "--max-running", strconv.Itoa(t.Streams))
	return nil
}

// slowPrefill has a worker that reads 4 tokens of a prompt per step.
var slowPrefill = lab.Layout{Workers: 1, Chats: 1, Edges: 1, Worker: []string{"--sim-chunk", "4"}}

// A stage is what the engine does for a stream when its client leaves.
type stage int

const (
	answering stage = iota
	queued
	prefilling
)

const (
	short = 5   // tokens of an answer after a long prompt
	words = 150 // in a prompt that slowPrefill's worker reads for longer than a client waits
)

// leavers are clients that leave one after another.
type leavers struct {
	by    func(context.Context, *trial.Trial, *leaver) (leave func(), err error) // opens a stream
	stage stage
}

// A leaver is a client that leaves.
type leaver struct {
	reader.Reader
	tokens int
	flows  chan struct{} // closed at the first text
	over   chan struct{} // closed when the client has no connection
	left   time.Time
}

// play opens additional streams, one after another, whose clients leave. There are a fifth as many as
// streams that continue, and at most 100, so that all have left while the other streams run.
func (l leavers) play(ctx context.Context, t *trial.Trial) ([]trial.Finding, error) {
	var all []*leaver
	for i := range min(max(1, t.Streams/5), 100) {
		one := &leaver{tokens: t.Row.Tokens, flows: make(chan struct{}), over: make(chan struct{})}
		one.ID, one.Want, one.Flows = fmt.Sprint("leaves-", i), t.Want, func() { close(one.flows) }
		if l.stage == prefilling {
			one.tokens = short
			one.Prompt, one.Want = fmt.Sprint(i, strings.Repeat(" fox", words)), "" // of its own, so that no cache has it
		}
		leave, err := l.by(ctx, t, one)
		if err != nil {
			return nil, err
		}
		if err := l.reached(ctx, one); err != nil {
			leave()
			return nil, err
		}
		one.left = time.Now()
		leave()
		all = append(all, one)
	}
	if err := t.AllRun(); err != nil {
		return nil, err
	}
	return l.judge(ctx, t, all)
}

// reached returns when a client is at the stage at which it leaves.
func (l leavers) reached(ctx context.Context, one *leaver) error {
	if l.stage != answering {
		select {
		case <-one.flows:
			return fmt.Errorf("%s has text, and should wait for it", one.ID)
		case <-one.over:
			return fmt.Errorf("%s has ended with %w, and should wait", one.ID, one.Err)
		case <-time.After(100 * time.Millisecond):
			return nil
		}
	}
	select {
	case <-one.flows:
	case <-time.After(lab.Patience):
		return fmt.Errorf("%s received no text within %v", one.ID, lab.Patience)
	case <-ctx.Done():
		return ctx.Err()
	}
	time.Sleep(10 * time.Millisecond)
	return nil
}

// judge reads the stories of the streams whose clients have left.
func (l leavers) judge(ctx context.Context, t *trial.Trial, all []*leaver) ([]trial.Finding, error) {
	var took []time.Duration
	most, unclear := 0, 0
	for _, one := range all {
		var s reader.Story
		var err error
		if e := lab.Await(ctx, "the engine has stopped "+one.ID, func() bool {
			s, err = reader.Tell(ctx, t.HTTP, t.Edges[0].Addr, one.ID)
			return err == nil && s.State == "ended"
		}); e != nil {
			return nil, errors.Join(e, err)
		}
		engine, reached := s.Engine()
		if !reached {
			return nil, fmt.Errorf("no worker has a record of %s", one.ID)
		}
		took = append(took, max(0, engine.Over().Sub(one.left)))
		most = max(most, engine.Generated-one.Events())
		if s.Reason != "client_gone" || engine.Reason != "client_gone" || !slices.Equal(engine.Path, []string{"client", "api-service", "chat-service", "llm-worker/0"}) {
			unclear++
		}
	}
	return []trial.Finding{
		{What: "client leaves until the engine has stopped, p99", Got: trial.InMillis(reader.P99(took))},
		{What: "most tokens that the engine made and the client did not get", Got: float64(most)},
		{What: "streams that left with another reason or path than the client's", Got: float64(unclear)},
	}, nil
}

// closing opens a stream whose client closes its connection.
func closing(ctx context.Context, t *trial.Trial, one *leaver) (func(), error) {
	ctx, cancel := context.WithCancel(ctx)
	t.Reading.Go(func() {
		one.Read(ctx, t.HTTP, t.Edges[0].Addr, one.tokens)
		close(one.over)
	})
	return func() {
		cancel()
		<-one.over
	}, nil
}

// resetting opens a stream whose client resets its connection.
func resetting(ctx context.Context, t *trial.Trial, one *leaver) (func(), error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", t.Edges[0].Addr)
	if err != nil {
		return nil, err
	}
	t.Reading.Go(func() {
		client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) { return conn, nil }}}
		one.Read(ctx, &client, t.Edges[0].Addr, one.tokens)
		close(one.over)
	})
	return func() {
		_ = conn.(*net.TCPConn).SetLinger(0) // closes with RST
		_ = conn.Close()
		<-one.over
	}, nil
}

// dying opens a stream of another process, which is killed.
func dying(_ context.Context, t *trial.Trial, one *leaver) (func(), error) {
	url := "http://" + t.Edges[0].Addr + "/v1/chat/completions"
	p, err := t.Builds.Start("victim", url, one.ID, string(one.Body(one.tokens)))
	if err != nil {
		return nil, err
	}
	flows := one.Flows
	t.Reading.Go(func() {
		for !strings.Contains(p.Out.String(), `{"content":"`) {
			select {
			case <-p.Exited():
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
		flows()
	})
	return func() {
		_ = p.Signal(syscall.SIGKILL) // fails if the process has ended
		<-p.Exited()
		one.Flows = nil
		one.Scan(strings.NewReader(p.Out.String()))
	}, nil
}
