package postprocess

// A textTail is the held-back text. It is shorter than the longest stop string, and buf is at most
// twice that plus a piece: emitted text is removed from its front only when it makes up half of
// buf, so that a long partial match that advances byte by byte is not copied each time.
type textTail struct {
	buf  []byte
	head int // buf[:head] has been emitted
}

func (t *textTail) len() int { return len(t.buf) - t.head }

// cut appends piece, keeps the last keep bytes, and returns the bytes before them.
func (t *textTail) cut(piece string, keep int) string {
	if t.len() == 0 { // usually nothing is held back, and piece itself can be cut
		t.buf, t.head = t.buf[:0], 0
		out := len(piece) - keep
		t.buf = append(t.buf, piece[out:]...)
		return piece[:out]
	}
	t.buf = append(t.buf, piece...)
	out := t.buf[t.head : len(t.buf)-keep]
	if len(out) == 0 {
		return ""
	}
	emit := string(out)
	t.head += len(out)
	if t.head*2 >= len(t.buf) {
		t.buf = t.buf[:copy(t.buf, t.buf[t.head:])]
		t.head = 0
	}
	return emit
}
