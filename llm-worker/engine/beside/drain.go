package beside

import "context"

// Drain sends a request and discards the answer. Probes use it to try a server. The error is ctx's
// cause if ctx is done first.
func Drain(ctx context.Context, call Call) error {
	_, err := collect(ctx, call)
	return err
}

// collect is Drain, and returns the tokens of the answer.
func collect(ctx context.Context, call Call) (ids []uint32, err error) {
	undo := context.AfterFunc(ctx, func() { call.Stop() })
	ids, err = read(ctx, call)
	if !undo() && err != nil {
		err = context.Cause(ctx)
	}
	call.Stop()
	return ids, err
}

func read(ctx context.Context, call Call) (ids []uint32, err error) {
	if err := call.Open(ctx); err != nil {
		return nil, err
	}
	for {
		more, end, err := call.Next()
		ids = append(ids, more...)
		if err != nil || end != nil {
			return ids, err
		}
	}
}
