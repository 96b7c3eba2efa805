package trial

import (
	"context"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/whence-dev/whence/bench/trust/reader"
	"github.com/whence-dev/whence/internal/client"
)

// makers is the number of kept streams that are made at a time.
const makers = 20

// keep creates kept streams at the first edge and reads them at the second edge.
func (t *Trial) keep(ctx context.Context, n int) error {
	maker, err := client.New("http://"+t.Edges[0].Addr, client.Options{})
	if err != nil {
		return err
	}
	other, err := client.New("http://"+t.Edges[1].Addr, client.Options{})
	if err != nil {
		return err
	}
	ask := client.Request{
		Model: reader.Model, Messages: []client.Message{{Role: "user", Content: reader.Prompt}}, MaxTokens: t.Row.Tokens, Temperature: new(0.0),
		Extra: map[string]any{"seed": 1, "ignore_eos": true},
	}
	making, fails := errgroup.WithContext(ctx)
	making.SetLimit(makers)
	var mu sync.Mutex // guards the readers
	for range n {
		making.Go(func() error {
			made, err := maker.Stream(fails, ask)
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			r := t.newReader(made.ID())
			t.run(func() { r.Follow(ctx, other.Resume(made.ID(), made.Cursor())) })
			return nil
		})
	}
	if err := making.Wait(); err != nil {
		return err
	}
	return t.flowing(ctx)
}
