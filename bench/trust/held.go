package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/whence-dev/whence/bench/trust/reader"
	"github.com/whence-dev/whence/bench/trust/trial"
	"github.com/whence-dev/whence/lab"
)

var heldRows = []trial.Row{
	{Name: "ten times as many idle and twice as many live streams are held", Layout: lab.Layout{Workers: 1, Chats: 1, Edges: 1, Chat: []string{"--idle-timeout", "0"}}, Play: held},
}

// liveTokens is the number of tokens of each live stream. A client opens the next stream when its
// stream has ended.
const liveTokens = 400

// held holds idle streams, which are conversations between two turns, beside live ones, for --held.
func held(ctx context.Context, t *trial.Trial) ([]trial.Finding, error) {
	want := &reader.Reader{}
	want.Read(ctx, t.HTTP, t.Edges[0].Addr, liveTokens)
	if want.Ending != reader.Completed {
		return nil, fmt.Errorf("an undisturbed stream ends with %w", want.Err)
	}
	idle, err := converse(ctx, t, 10*t.Streams)
	defer func() { _, _ = eachOf(len(idle), func(i int) error { return idle[i].close() }) }()
	if err != nil {
		return nil, err
	}
	until := time.Now().Add(t.Held)
	var mu sync.Mutex // guards failed, wrong and complete
	failed, wrong, complete := 0, 0, 0
	for i := range 2 * t.Streams {
		t.Reading.Go(func() {
			for n := 0; time.Now().Before(until); n++ {
				r := &reader.Reader{ID: fmt.Sprintf("live-%d-%d", i, n), Want: want.Text()}
				r.Read(ctx, t.HTTP, t.Edges[0].Addr, liveTokens)
				mu.Lock()
				if r.Ending != reader.Completed {
					failed++
				} else {
					complete++
				}
				if r.Wrong() {
					wrong++
				}
				mu.Unlock()
			}
		})
		if i%50 == 49 {
			time.Sleep(50 * time.Millisecond) // keeps the steps of the engine spread out
		}
	}
	t.Reading.Wait()
	broken, err := eachOf(len(idle), func(i int) error { return idle[i].finish() })
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: an idle stream: %v\n", t.Row.Name, err)
	}
	return []trial.Finding{
		{What: "live streams that fail", Got: float64(failed)},
		{What: fmt.Sprintf("live streams with lost or doubled text, of %d tokens", complete*liveTokens), Got: float64(wrong)},
		{What: "idle streams that do not continue afterwards", Got: float64(broken)},
	}, ctx.Err()
}

// An idler is a conversation between two turns.
type idler struct {
	*reader.Conversation
	want string // the text of the second turn
}

// close closes the connection, if it was opened.
func (c *idler) close() error {
	if c.Conversation == nil {
		return nil
	}
	return c.Close()
}

// finish has a second turn, and ends the conversation.
func (c *idler) finish() error {
	text, err := c.Again()
	if err == nil && text != c.want {
		err = fmt.Errorf("the second turn is %q, want %q", text, c.want)
	}
	return err
}

// converse begins n conversations whose texts are those of an undisturbed one.
func converse(ctx context.Context, t *trial.Trial, n int) ([]idler, error) {
	model, first, err := reader.Converse(ctx, t.Edges[0].Addr, "idle")
	if err != nil {
		return nil, err
	}
	second, err := model.Again()
	if err := errors.Join(err, model.Close()); err != nil {
		return nil, err
	}
	all := make([]idler, n)
	_, err = eachOf(n, func(i int) error {
		c, text, err := reader.Converse(ctx, t.Edges[0].Addr, "idle-"+strconv.Itoa(i))
		all[i] = idler{c, second}
		if err == nil && text != first {
			err = fmt.Errorf("the first turn is %q, want %q", text, first)
		}
		return err
	})
	return all, err
}

// atOnce is the number of conversations that begin, or end, at a time.
const atOnce = 50

// eachOf calls do for each number below n, atOnce at a time. It returns how many calls failed, and one
// of their errors.
func eachOf(n int, do func(int) error) (failed int, err error) {
	var mu sync.Mutex // guards the results
	var all sync.WaitGroup
	places := make(chan struct{}, atOnce)
	for i := range n {
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			if e := do(i); e != nil {
				mu.Lock()
				failed, err = failed+1, e
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return failed, err
}
