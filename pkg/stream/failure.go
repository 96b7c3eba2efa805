package stream

import (
	"errors"
	"fmt"
	"runtime/debug"
)

// A Failure is the ending of a stream whose code has panicked, or has exited its goroutine.
type Failure struct {
	Value any // of the panic; nil for an exit
	Stack []byte
}

// Error implements error.
func (f *Failure) Error() string {
	if f.Value == nil {
		return "the goroutine of the stream has exited"
	}
	return fmt.Sprintf("panic: %v", f.Value)
}

// FailureOf returns the Failure that ended a stream with err, or nil.
func FailureOf(err error) *Failure {
	f, _ := errors.AsType[*Failure](err)
	return f
}

// failureOf returns the Failure for the result of recover. A deferred call calls it, if its function did
// not return.
func failureOf(recovered any) *Failure {
	switch v := recovered.(type) {
	case nil:
		return &Failure{}
	case *Failure: // a loop over an engine has repeated it
		return v
	default:
		return &Failure{Value: v, Stack: debug.Stack()}
	}
}

// Guard calls f. If f panics or exits its goroutine, Guard calls failed, on the same goroutine. Guard
// recovers from a panic; an exit continues.
func Guard(f func(), failed func(*Failure)) {
	returned := false
	defer func() {
		if !returned {
			failed(failureOf(recover()))
		}
	}()
	f()
	returned = true
}
