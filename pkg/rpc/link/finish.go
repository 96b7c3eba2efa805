package link

import "google.golang.org/grpc/metadata"

// Finish implements loop.Sink.
func (st *serverStream) Finish(err error, trailer metadata.MD) {
	st.mu.Lock()
	before, md := st.finished, metadata.Join(st.md, trailer)
	st.finished = true
	hooks := st.finish
	st.finish = nil
	st.mu.Unlock()
	for _, f := range hooks {
		f()
	}
	if !before {
		st.unhook()
		st.s.Finish(err, md)
	}
}

// Release implements loop.Sink.
func (st *serverStream) Release() {
	st.mu.Lock()
	all := st.release
	st.released, st.release = true, nil
	st.mu.Unlock()
	for _, f := range all {
		f()
	}
}

// OnFinish implements loop.Sink.
func (st *serverStream) OnFinish(f func()) {
	st.mu.Lock()
	finished := st.finished
	if !finished {
		st.finish = append(st.finish, f)
	}
	st.mu.Unlock()
	if finished {
		f()
	}
}

// onRelease has f called once Release has been called, at once if that was before.
func (st *serverStream) onRelease(f func()) {
	st.mu.Lock()
	released := st.released
	if !released {
		st.release = append(st.release, f)
	}
	st.mu.Unlock()
	if released {
		f()
	}
}
