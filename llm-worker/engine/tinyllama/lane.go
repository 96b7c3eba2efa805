package tinyllama

import (
	"github.com/whence-dev/whence/llm-worker/batch"
	"github.com/whence-dev/whence/llm-worker/engine/tinyllama/matrix"
)

// A lane runs jobs, one tile of tokens after another. Each part of a tile is shared by the workers of
// its pool, so that the weights come from memory once for the tile. It allocates nearly all its
// memory in advance.
type lane struct {
	// Static.
	weights   *Weights
	pool      *workPool
	abandoned *abandonedSet
	parts     parts
	scratch   []scratch // for each worker

	// The current tile.
	tile      []row
	rows      []row      // the rows of tile that forward still computes; it drops rows on the way
	rotations []rotation // for each row of tile

	// Matrices with one row for each row of the tile.
	x         []float32 // the residual stream
	h         []float32 // input or output of a matrix
	qkv       []float32
	attention []float32
	gateUp    []float32

	// What the current part works on.
	number   int // of layer
	layer    *layer
	product  product
	states   []float32 // to be normalized
	norm     []float32
	choosing []row

	logits []float32 // of at most logitRows rows
}

// A scratch is the working memory of one worker.
type scratch struct {
	matrix.Scratch
	scores []float32 // of the query heads that share a KV head, for each position; grows with the context
	totals []float32 // of the scores of each of these heads
	part   []float32 // of the attention of these heads
	sigmas []float32 // of one MLP
}

// A row is one token on its way through the model.
type row struct {
	sequence *sequence
	token    uint32
	position int
	index    int // in the tile
	job      *job
	last     bool // the row's last states are needed
}

const (
	// tileRows is the number of tokens that go through a layer together: enough to use each block
	// of weights many times, and few enough that a layer's numbers stay in the CPU cache.
	tileRows = 64
	// logitRows is the number of rows of logits at a time; a vocabulary can be large.
	logitRows = 16
)

func newLane(w *Weights, pool *workPool, abandoned *abandonedSet) *lane {
	c := w.config
	l := &lane{
		weights:   w,
		pool:      pool,
		abandoned: abandoned,
		scratch:   make([]scratch, pool.Workers()),
		tile:      make([]row, 0, tileRows),
		rows:      make([]row, 0, tileRows),
		x:         make([]float32, tileRows*c.Hidden),
		h:         make([]float32, tileRows*c.Hidden),
		qkv:       make([]float32, tileRows*(c.QueryDim()+2*c.KVDim())),
		attention: make([]float32, tileRows*c.QueryDim()),
		gateUp:    make([]float32, tileRows*2*c.FeedForward),
		logits:    make([]float32, logitRows*c.Vocab),
	}
	l.parts = l.newParts()
	group := c.Heads / c.KVHeads
	for i := range l.scratch {
		l.scratch[i] = scratch{
			scores: make([]float32, group*BlockTokens),
			totals: make([]float32, group),
			part:   make([]float32, group*c.HeadDim),
			sigmas: make([]float32, c.FeedForward),
		}
	}
	for range tileRows {
		l.rotations = append(l.rotations, newRotation(c.HeadDim/2))
	}
	return l
}

// do runs jobs and sets the result of each. It never panics: a panic becomes the error of its job.
func (l *lane) do(jobs []job) {
	for i := range jobs {
		j := &jobs[i]
		s := j.sequence
		end := s.read + j.tokens
		for position := s.read; position < end && j.err == nil && !j.abandoned; position++ {
			last := position == end-1 && end == s.length() || s.embeds() || s.scores(position)
			l.tile = append(l.tile, row{sequence: s, token: s.token(position), position: position, job: j, last: last})
			if len(l.tile) == tileRows {
				l.flush()
			}
		}
	}
	l.flush()
}

// flush runs the tile. If that panics, it runs the rows of each job separately, which gives the
// same bits, so that only the jobs that panic on their own fail.
func (l *lane) flush() {
	if l.run(l.tile) != nil {
		for rest := l.tile; len(rest) > 0; {
			n := 1
			for n < len(rest) && rest[n].job == rest[0].job {
				n++
			}
			if j := rest[0].job; !j.chosen { // otherwise its rows are done
				if err := l.run(rest[:n]); err != nil {
					j.err = err
				}
			}
			rest = rest[n:]
		}
	}
	clear(l.tile) // release the sequences
	clear(l.rows[:cap(l.rows)])
	l.tile, l.rows = l.tile[:0], l.rows[:0]
}

// run takes rows through the model and lets samplers choose. The error is a recovered panic; the
// rows may be run again after it.
func (l *lane) run(rows []row) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = panicked(v)
		}
	}()
	if l.rows = append(l.rows[:0], rows...); len(rows) == 0 {
		return nil
	}
	l.forward()
	for i := 0; i < len(l.rows); {
		rows, states := alike(l.rows[i:]), l.x[i*l.weights.config.Hidden:]
		if rows[0].sequence.embeds() {
			l.sum(rows, states)
		} else {
			l.choose(rows, states)
		}
		i += len(rows)
	}
	return nil
}

// alike returns the longest prefix of rows, at most logitRows, in which either all are to be
// embedded or all are to get a token.
func alike(rows []row) []row {
	n := 1
	for n < min(len(rows), logitRows) && rows[n].sequence.embeds() == rows[0].sequence.embeds() {
		n++
	}
	return rows[:n]
}

// panicked returns the ending of sequences after a panic, with the stack of the worker that panicked.
func panicked(v any) error {
	worker, ok := v.(*workPanic)
	if !ok {
		return batch.Panicked(v)
	}
	err := batch.Panicked(worker.Value)
	err.Cause = &batch.Panic{Value: worker.Value, Stack: worker.Stack}
	return err
}

// choose turns the hidden states of rows into logits, and logits into tokens or scores.
func (l *lane) choose(rows []row, states []float32) {
	c := l.weights.config
	l.normalizeAll(states, l.weights.norm, len(rows))
	l.multiply(&l.weights.head, matrix.Rows{Data: l.logits, Stride: c.Vocab}, matrix.Rows{Data: l.h, Stride: c.Hidden}, len(rows), matrix.Rows{})
	l.choosing = rows
	l.pool.Run(len(rows), 1, l.parts.choose)
	l.choosing = nil // release the sequences
}
