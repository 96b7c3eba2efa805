package fleet

import (
	"time"

	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
)

// A Charge is the estimated load of a stream on its worker. One goroutine at a time owns it.
type Charge struct {
	worker *Worker
	unread int64 // prompt tokens that are still to be read
	tokens int64 // tokens that the stream occupies in the KV cache
	trial  int   // number of the trial that the stream is; 0 if it is none
}

// Charge counts a stream as the worker's until End. cached tokens of its prompt are expected in the
// worker's cache.
func (w *Worker) Charge(prompt, cached int) Charge {
	c := Charge{worker: w, unread: int64(prompt - cached), tokens: int64(prompt - cached)}
	c.trial = w.breaker.begin(time.Now())
	w.ours.Add(1)
	w.unread.Add(c.unread)
	w.tokens.Add(c.tokens)
	return c
}

// Add charges further tokens that the worker must read.
func (c *Charge) Add(tokens int) {
	c.unread += int64(tokens)
	c.tokens += int64(tokens)
	c.worker.unread.Add(int64(tokens))
	c.worker.tokens.Add(int64(tokens))
}

// Read notes that the worker has read the whole prompt.
func (c *Charge) Read() {
	c.worker.unread.Add(-c.unread)
	c.unread = 0
}

// Note charges a message of the worker. A token means that the prompt has been read. Any message
// means that the worker is alive.
func (c *Charge) Note(out *workerv1.GenerateResponse) {
	if !c.worker.alive.Load() { // usually set; read first, because all streams share it
		c.worker.alive.Store(true)
	}
	n := int64(len(out.GetTokens().GetIds()))
	if n == 0 {
		return
	}
	c.Read()
	c.worker.tokens.Add(n)
	c.tokens += n
}

// End releases the charge. It must be called once.
func (c *Charge) End() {
	c.Read()
	c.worker.tokens.Add(-c.tokens)
	if c.trial != 0 {
		c.worker.breaker.end(c.trial)
	}
	c.worker.done()
}
