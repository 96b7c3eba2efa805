package batch

import (
	"errors"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
)

// ErrFull is what a Model's Join returns when the sequence would fit once others have left.
var ErrFull = errors.New("batch: no room for another sequence now")

// A Model runs many sequences together, one step at a time. Only Loop.Run calls it, from one goroutine, so it needs no
// locks; it may use goroutines of its own inside Step.
type Model interface {
	// Check reports whether the request could ever join, without changing anything. It alone may be called from any
	// goroutine, at any time. An error is a *streamerr.Error with reason Invalid that names the field.
	Check(req *workerv1.TokenRequest) error
	// Join adds a sequence under id, which is unique for the life of the model, and reserves all the memory that it
	// can come to need. ErrFull means not before another has left. The model keeps req, and does not change it.
	Join(id uint64, req *workerv1.TokenRequest) error
	// Leave forgets a sequence and frees its memory for others. The model may keep the sequence's cache for prompts
	// with the same beginning, as long as the memory is not needed. Leave is called once for every sequence that
	// joined, finished or not, and for a sequence whose Join panicked. Leave of an unknown sequence does nothing.
	Leave(id uint64)
	// Step advances the sequences named by ids (each has joined, none twice) and appends what they produced to out: for
	// a sequence whose prompt is still being read nothing, else one token. A large prompt takes several steps, so that
	// no step is long. A sequence that has finished is not named again. An error, or a panic, ends all sequences named by ids; a model
	// that knows which sequence failed says so in Output.Err instead.
	Step(ids []uint64, out []Output) ([]Output, error)
	// KV reports how many token positions of KV cache are reserved, and how many there are. Those that only remember what
	// sequences had read that have left are not reserved.
	KV() (used, total uint64)
}

// An Embedder is a Model that makes vectors of texts, too. A text is a sequence like any other, but for how it joins; when it has been
// read its only Output comes, with Vector or Err.
type Embedder interface {
	Model
	// CheckEmbed is Check for a text. Its errors name no field.
	CheckEmbed(ids []uint32) error
	// JoinEmbed is Join for a text.
	JoinEmbed(id uint64, ids []uint32) error
}

// Output is what one sequence produced in one step.
type Output struct {
	ID    uint64
	Token uint32
	// Hidden marks a token that ends the answer and is not part of it, such as end-of-sequence.
	Hidden bool
	// Finish is FINISH_UNSPECIFIED while the sequence goes on.
	Finish llmv1.Finish
	// Cached is how many tokens of the prompt were in the KV cache when the sequence joined; read with Finish.
	Cached uint32
	// Handover is what the request asked for that is to be handed over, and ends it: there is no token, and no other output. Empty for
	// any other request.
	Handover string
	// Err ends this sequence alone, without a token.
	Err error
	// Vector is what a text has become, which is the last of it. There is no token then.
	Vector *llmv1.Embedding
	// Logprobs are what the request asks to be told of the token, or nil. They are good until the next Step.
	Logprobs *Logprobs
}

// Logprobs are the log-probability of a token, and those of the likeliest in its place, as many each time.
type Logprobs struct {
	Token float32
	IDs   []uint32
	Top   []float32
}
