package batch

import (
	"errors"
	"runtime/debug"

	"github.com/whence-dev/whence/internal/panicvalue"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A Panic is the cause of an ending after a panic in a model.
type Panic struct {
	Value any
	Stack []byte
}

// Error implements error.
func (p *Panic) Error() string { return "panic in the engine: " + panicvalue.Text(p.Value) }

// Panicked returns the ending of a sequence whose step panicked with value. It captures the stack,
// so it must be called where the panic is recovered. A model that knows which sequence panicked
// recovers the panic and returns it in Output.Err; the Loop logs the stack.
func Panicked(value any) *streamerr.Error {
	return &streamerr.Error{
		Reason: streamerr.Internal, Path: streamerr.NewPath(engineHop), Message: "the engine panicked; the worker's log has the stack",
		Cause: &Panic{Value: value, Stack: debug.Stack()},
	}
}

// logPanic logs err if it is a panic.
func (l *Loop) logPanic(err error, streams int) {
	if p, ok := errors.AsType[*Panic](err); ok {
		l.opts.Log.Error("engine panicked", "streams", streams, "panic", panicvalue.Text(p.Value), "stack", string(p.Stack))
	}
}

// guard runs f, which calls the model on behalf of streams sequences, and turns a panic into an
// error.
func (l *Loop) guard(streams int, f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = Panicked(v)
			l.logPanic(err, streams)
		}
	}()
	return f()
}

// join adds a sequence to the model. If Join panics, the model forgets the sequence.
func (l *Loop) join(s *sequence) error {
	err := l.guard(1, func() error {
		if s.texts != nil {
			return l.embedder.JoinEmbed(s.id, s.texts[len(s.vectors)].GetIds())
		}
		return s.join(s.id)
	})
	if _, panicked := errors.AsType[*Panic](err); panicked {
		l.leaveModel(s.id)
	}
	return err
}

// leaveModel makes the model forget a sequence. After a panic in Leave the model may hold memory
// that no sequence uses.
func (l *Loop) leaveModel(id uint64) {
	_ = l.guard(1, func() error { l.model.Leave(id); return nil }) // guard has logged it
}

// abandonModel tells the model that the reader of a sequence has left. The caller does not hold mu.
func (l *Loop) abandonModel(id uint64) {
	if l.interrupter != nil {
		_ = l.guard(1, func() error { l.interrupter.Abandon(id); return nil }) // guard has logged it
	}
}

// advance steps the model.
func (l *Loop) advance(ids []uint64, outs []Output) ([]Output, error) {
	err := l.guard(len(ids), func() (err error) {
		outs, err = l.model.Step(ids, outs)
		return err
	})
	return outs, err
}
