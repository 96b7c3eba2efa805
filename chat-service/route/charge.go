package route

import workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"

// A charge is what a stream costs its worker, as far as is known here. It is owned by the goroutine of the call, from begin on.
type charge struct {
	unread int64 // tokens of the prompt that are still to be read
	tokens int64 // tokens that it takes of the KV cache
}

// begin charges a worker with a prompt, of which so many tokens are expected in its cache.
func (c *charge) begin(w *Worker, prompt, cached int) {
	c.unread, c.tokens = int64(prompt-cached), int64(prompt-cached)
	w.unread.Add(c.unread)
	w.tokens.Add(c.tokens)
}

// note charges what the worker sends: a token says that the prompt has been read.
func (c *charge) note(w *Worker, out *workerv1.GenerateResponse) {
	n := int64(len(out.GetTokens().GetIds()))
	if n == 0 {
		return
	}
	w.unread.Add(-c.unread)
	w.tokens.Add(n)
	c.unread = 0
	c.tokens += n
}

// end gives everything back.
func (c *charge) end(w *Worker) {
	w.unread.Add(-c.unread)
	w.tokens.Add(-c.tokens)
	*c = charge{}
}
