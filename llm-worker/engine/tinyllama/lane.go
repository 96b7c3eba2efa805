package tinyllama

import "github.com/whence-dev/whence/llm-worker/engine/tinyllama/kv"

// A lane runs jobs one tile of tokens after another, on one goroutine at a time. All its memory is made beforehand.
type lane struct {
	// Static.
	weights *Weights

	// The tile under way.
	rows      []row
	rotations []rotation // for each row

	// Numbers, one row for each row of the tile.
	x         []float32 // the residual stream
	h         []float32 // what goes into a matrix, or comes out of it
	qkv       []float32
	attention []float32
	gateUp    []float32

	// Scratch for one row.
	scores []float32 // for each position
	part   []float32 // of one head
	sigmas []float32 // of one MLP

	logits []float32 // of at most logitRows rows
}

// A row is one token on its way through the model.
type row struct {
	sequence *sequence
	token    uint32
	position int
	job      *job // that needs the last states; nil if nobody does
}

const (
	// tileRows is how many tokens go through a layer together: enough to use each block of weights many times, few enough
	// that a layer's numbers stay in the cache.
	tileRows = 64
	// logitRows is how many rows of logits there are at a time; a vocabulary can be large.
	logitRows = 16
)

func newLane(w *Weights, context int) *lane {
	c := w.config
	l := &lane{
		weights:   w,
		rows:      make([]row, 0, tileRows),
		x:         make([]float32, tileRows*c.hidden),
		h:         make([]float32, tileRows*c.hidden),
		qkv:       make([]float32, tileRows*(c.queryDim()+2*c.kvDim())),
		attention: make([]float32, tileRows*c.queryDim()),
		gateUp:    make([]float32, tileRows*2*c.feedForward),
		scores:    make([]float32, kv.Blocks(context)*kv.BlockTokens),
		part:      make([]float32, c.headDim),
		sigmas:    make([]float32, c.feedForward),
		logits:    make([]float32, logitRows*c.vocab),
	}
	for range tileRows {
		l.rotations = append(l.rotations, newRotation(c.headDim/2))
	}
	return l
}

// do runs jobs and sets what came of each.
func (l *lane) do(jobs []job) {
	for i := range jobs {
		j := &jobs[i]
		s := j.sequence
		end := s.read + j.tokens
		for position := s.read; position < end; position++ {
			r := row{sequence: s, token: s.token(position), position: position}
			if position == end-1 && end >= len(s.prompt) || s.embeds() {
				r.job = j
			}
			l.rows = append(l.rows, r)
			if len(l.rows) == tileRows {
				l.flush()
			}
		}
	}
	l.flush()
}

// flush runs the tile and lets samplers choose.
func (l *lane) flush() {
	if len(l.rows) == 0 {
		return
	}
	all := l.rows
	l.forward()
	for i := 0; i < len(l.rows); {
		rows, states := alike(l.rows[i:]), l.x[i*l.weights.config.hidden:]
		if rows[0].sequence.embeds() {
			l.pool(rows, states)
		} else {
			l.choose(rows, states)
		}
		i += len(rows)
	}
	clear(all) // let go of the sequences
	l.rows = all[:0]
}

// alike returns the first of rows, at most logitRows, that are all to be embedded, or all to get a token.
func alike(rows []row) []row {
	n := 1
	for n < min(len(rows), logitRows) && rows[n].sequence.embeds() == rows[0].sequence.embeds() {
		n++
	}
	return rows[:n]
}

// choose turns the hidden states of rows that end a job into logits, and logits into tokens.
func (l *lane) choose(rows []row, states []float32) {
	c := l.weights.config
	l.normalizeAll(l.h, states, l.weights.norm, len(rows))
	l.weights.head.apply(l.logits, c.vocab, l.h, c.hidden, len(rows))
	for i, r := range rows {
		r.job.choice, r.job.err = r.sequence.sampler.Next(l.logits[i*c.vocab : (i+1)*c.vocab])
		r.job.chosen = true
	}
}
