package stream

// A Relay is the part of the Reader that a stage has for each stream: it passes items up, and the ending
// after them. A stage embeds it and implements Item. It inherits End, or calls Close there if it has
// something to do at the end.
//
//	type upper struct{ stream.Relay[string] }
//
//	func (u *upper) Item(on *stream.Loop, text string) bool { return u.Pass(on, strings.ToUpper(text)) }
type Relay[Item any] struct {
	to   Reader[Item]
	left bool  // the Reader wants no more items, or did not return
	over bool  // err is the ending, whatever comes from below
	err  error // the ending
}

// RelayTo returns a Relay below a Reader.
func RelayTo[Item any](to Reader[Item]) Relay[Item] { return Relay[Item]{to: to} }

// Pass passes an item up. After the Reader has left, it does nothing and returns false.
func (r *Relay[Item]) Pass(on *Loop, item Item) (more bool) {
	if r.left {
		return false
	}
	r.left = true // stays true if Item does not return
	r.left = !r.to.Item(on, item)
	return !r.left
}

// Finish decides the ending of the stream; nil means that it is complete. It returns false, for Item to
// return: the Reader gets the ending when everything below is released.
func (r *Relay[Item]) Finish(err error) (more bool) {
	if !r.left {
		r.left, r.over, r.err = true, true, err
	}
	return false
}

// Left reports whether the Reader gets no more items: it has left, or Finish was called.
func (r *Relay[Item]) Left() bool { return r.left }

// End implements Reader.
func (r *Relay[Item]) End(err error) { r.to.End(r.ending(err)) }

// Close ends the stream. It calls last with the ending: last passes the last items, releases what the
// stage holds, and returns the ending for the Reader above. That Reader is ended even if last panics.
func (r *Relay[Item]) Close(err error, last func(err error) error) {
	err = r.ending(err)
	defer func() { r.to.End(err) }()
	Guard(func() { err = last(err) }, func(failure *Failure) { err = failure })
}

// ending returns the ending of Finish, or else err. A failure below is never hidden.
func (r *Relay[Item]) ending(err error) error {
	if r.over && FailureOf(err) == nil {
		return r.err
	}
	return err
}
