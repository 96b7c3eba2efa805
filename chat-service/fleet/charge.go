package fleet

import (
	"time"

	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
)

// A Charge is the estimated load of a stream on its worker. It is owned by one goroutine at a time.
type Charge struct {
	worker *Worker
	unread int64 // tokens of the prompt that are still to be read
	tokens int64 // tokens that it takes of the KV cache
	trial  int   // number of the worker's trial after a cool-down that the stream is; 0 for none
}

// Charge makes a stream one of the worker's, until End. cached tokens of its prompt are expected in the worker's cache.
func (w *Worker) Charge(prompt, cached int) Charge {
	c := Charge{worker: w, unread: int64(prompt - cached), tokens: int64(prompt - cached)}
	c.trial = w.breaker.begin(time.Now())
	w.ours.Add(1)
	w.unread.Add(c.unread)
	w.tokens.Add(c.tokens)
	return c
}

// Add charges tokens that the worker has to read, beside the prompt.
func (c *Charge) Add(tokens int) {
	c.unread += int64(tokens)
	c.tokens += int64(tokens)
	c.worker.unread.Add(int64(tokens))
	c.worker.tokens.Add(int64(tokens))
}

// Read notes that the worker has nothing left to read of the prompt.
func (c *Charge) Read() {
	c.worker.unread.Add(-c.unread)
	c.unread = 0
}

// Note charges what the worker sends: a token says that the prompt has been read. Any message says that the worker is alive.
func (c *Charge) Note(out *workerv1.GenerateResponse) {
	if !c.worker.heard.Load() { // most times it is set: streams share it
		c.worker.heard.Store(true)
	}
	n := int64(len(out.GetTokens().GetIds()))
	if n == 0 {
		return
	}
	c.Read()
	c.worker.tokens.Add(n)
	c.tokens += n
}

// End gives everything back, once.
func (c *Charge) End() {
	c.Read()
	c.worker.tokens.Add(-c.tokens)
	if c.trial != 0 {
		c.worker.breaker.end(c.trial)
	}
	c.worker.done()
}
