package batch

import (
	"context"
	"errors"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
)

// ErrFull is the error of a Model's Join if the sequence would fit after others have left.
var ErrFull = errors.New("batch: no room for another sequence now")

// A Model runs many sequences together, one step at a time. Only Loop.Run calls it, from one
// goroutine, so it needs no locks. It may use goroutines of its own inside Step.
type Model interface {
	// Check reports whether the request could ever join, without changing the model. Any goroutine
	// may call Check, at any time; no other method allows that. An error is a *streamerr.Error with
	// reason Invalid that names the field.
	Check(req *workerv1.TokenRequest) error
	// Join adds a sequence under id, which is unique for the life of the model. It returns ErrFull
	// if another sequence must leave first. The model keeps req and does not change it. A model that
	// is not a Pauser reserves all the memory that the sequence may need.
	Join(id uint64, req *workerv1.TokenRequest) error
	// Leave forgets a sequence and frees its memory for others. The model may keep the sequence's
	// cache for prompts with the same prefix, as long as no sequence needs the memory. Leave is
	// called once for every sequence that joined, finished or not, and for a sequence whose Join
	// panicked. Leave of an unknown sequence does nothing.
	Leave(id uint64)
	// Step advances the sequences named by ids (each has joined, none appears twice) and appends
	// their output to out: one token per sequence, or nothing while its prompt is still being read.
	// A large prompt takes several steps, so that no step is long. A finished sequence is not named
	// again. An error or a panic ends all sequences named by ids; a model that knows which sequence
	// failed sets Output.Err instead.
	Step(ids []uint64, out []Output) ([]Output, error)
	// KV returns how many token positions of KV cache sequences hold or are promised, and how many
	// exist. Positions that only cache the text of departed sequences are not used.
	KV() (used, total uint64)
}

// A Preparer is a Model whose sequences need work before they join that does not need the model,
// such as compiling a guide.
type Preparer interface {
	Model
	// Prepare is Check, and does that work. The result is called as Join is, instead of it: until it
	// no longer returns ErrFull, or never. Any goroutine may call Prepare, at any time. It returns
	// at once with stream.Cause(ctx) if the stream is stopped.
	Prepare(ctx context.Context, req *workerv1.TokenRequest) (join func(id uint64) error, err error)
}

// A Pauser is a Model that lets sequences join although its memory may not hold all of them until
// their end. When memory runs out, Step pauses a sequence. Leave lets it resume, and its answer is
// the same.
type Pauser interface {
	Model
	// Paused reports whether a sequence waits for memory. Step has no output for it.
	Paused(id uint64) bool
}

// An Interrupter is a Model that can cut a Step short.
type Interrupter interface {
	Model
	// Abandon tells the model that the reader of a sequence has left. A running Step skips the work
	// that only this sequence needs, and returns early if no other work is left. Any goroutine may
	// call Abandon at any time: usually during Step and before Leave, but also after Leave, twice, or
	// for a sequence that never joined. Abandon must not block.
	Abandon(id uint64)
}

// An Embedder is a Model that also computes vectors of texts. A text is a sequence that joins with
// JoinEmbed. When it has been read, its only Output comes, with Vector or Err.
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
	// Finish is FINISH_UNSPECIFIED until the sequence is finished.
	Finish llmv1.Finish
	// Cached is the number of prompt tokens that were in the KV cache when the sequence joined. It
	// is read with Finish.
	Cached uint32
	// Handover is the handover that the request asked for. It ends the sequence, which has no token
	// and no other output. It is empty for any other request.
	Handover string
	// Err ends this sequence only, without a token.
	Err error
	// Vector is the vector of a text. It ends the sequence, which has no token.
	Vector *llmv1.Embedding
	// Logprobs are the requested log-probabilities of the token, or nil. They are valid until the
	// next Step.
	Logprobs *Logprobs
	// Prompt are the requested log-probabilities of the prompt, beside the first token, or nil.
	Prompt *workerv1.PromptLogprobs
}

// Logprobs are the log-probability of a token and those of the most likely tokens in its place, the
// same number for each token.
type Logprobs struct {
	Token float32
	IDs   []uint32
	Top   []float32
}
