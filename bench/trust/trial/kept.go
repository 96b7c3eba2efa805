package trial

import (
	"context"

	"github.com/whence-dev/whence/bench/trust/reader"
	"github.com/whence-dev/whence/internal/client"
)

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
	for range n {
		made, err := maker.Stream(ctx, ask)
		if err != nil {
			return err
		}
		r := t.newReader(made.ID())
		t.run(func() { r.Follow(ctx, other.Resume(made.ID(), made.Cursor())) })
	}
	return t.flowing(ctx)
}
