package beside

import "context"

// Drain sends a request and discards the answer. Probes use it to try a server. The error is ctx's
// cause if ctx is done first.
func Drain(ctx context.Context, call Call) error {
	undo := context.AfterFunc(ctx, func() { call.Stop() })
	err := drain(ctx, call)
	if !undo() && err != nil {
		err = context.Cause(ctx)
	}
	call.Stop()
	return err
}

func drain(ctx context.Context, call Call) error {
	if err := call.Open(ctx); err != nil {
		return err
	}
	for {
		if _, end, err := call.Next(); err != nil || end != nil {
			return err
		}
	}
}
