package main

import (
	"context"
	"syscall"
	"time"

	"github.com/whence-dev/whence/client"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// keep creates kept streams at the first edge and reads them at the second edge.
func (s *stand) keep(ctx context.Context, n int) error {
	maker, err := client.New("http://"+s.edges[0].addr, client.Options{})
	if err != nil {
		return err
	}
	other, err := client.New("http://"+s.edges[1].addr, client.Options{})
	if err != nil {
		return err
	}
	ask := client.Request{
		Model: model, Messages: []client.Message{{Role: "user", Content: prompt}}, MaxTokens: s.tokens, Temperature: new(0.0),
		Extra: map[string]any{"seed": 1, "ignore_eos": true},
	}
	for range n {
		made, err := maker.Stream(ctx, ask)
		if err != nil {
			return err
		}
		r := &reader{id: made.ID(), want: s.want, flows: func() { s.begun.Add(1) }, asked: time.Now()}
		s.readers = append(s.readers, r)
		s.run(func() { r.follow(ctx, other.Resume(made.ID(), made.Cursor())) })
	}
	return s.await(ctx, "all streams have text", func() bool { return int(s.begun.Load()) >= n })
}

// follow reads a kept stream to its end.
func (r *reader) follow(ctx context.Context, st *client.Stream) {
	r.ending = cut
	defer func() { r.over = time.Now() }()
	for e, err := range st.Events(ctx) {
		switch {
		case ctx.Err() != nil:
			r.ending = left
			return
		case err != nil:
			r.ending, r.err = failed, streamerr.As(err)
			return
		case r.ending == completed:
			r.ending = cut // the ending was not the last event
			return
		case e.Kind == client.Delta && e.Text != "":
			r.token(e.Text, time.Now())
		case e.Kind == client.Ended:
			r.ending = completed
		}
	}
}

// takenOver kills the api-service of kept streams whose readers are connected to another instance.
func takenOver(_ context.Context, s *stand) ([]finding, error) {
	return s.strike(s.edges[0], syscall.SIGKILL, 2*time.Second)
}
