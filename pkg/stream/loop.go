package stream

// A Flusher writes the data that it has kept until the end of a batch.
type Flusher interface{ Flush() }

// A Loop is a goroutine that reads a connection and carries the items of many streams. Only that
// goroutine uses a Loop, so it needs no lock. A nil Loop is valid: it stands for a goroutine that serves
// one stream.
type Loop struct {
	handOver func()
	left     bool // another goroutine reads the connection
	later    []Flusher
}

// NewLoop returns the Loop of the calling goroutine. handOver is called at most once, while the goroutine
// carries an item. It starts a goroutine that continues to read the connection after that item.
func NewLoop(handOver func()) *Loop { return &Loop{handOver: handOver} }

// Wait must be called before the caller waits for longer than it takes to handle an item. From then on,
// the goroutine serves only the stream whose item it carries.
func (l *Loop) Wait() {
	if l == nil || l.left {
		return
	}
	l.left = true
	due := l.later
	l.later = nil
	l.handOver()
	flush(due)
}

// Later makes the Loop flush f at the end of the batch. It returns false if there is no batch: then the
// caller must flush f. A Flusher registers once per batch.
func (l *Loop) Later(f Flusher) bool {
	if l == nil || l.left {
		return false
	}
	l.later = append(l.later, f)
	return true
}

// Flush ends a batch: it writes the data kept by Later.
func (l *Loop) Flush() {
	flush(l.later)
	l.later = l.later[:0]
}

// Left reports whether another goroutine reads the connection.
func (l *Loop) Left() bool { return l == nil || l.left }

func flush(due []Flusher) {
	for i, f := range due {
		f.Flush()
		due[i] = nil
	}
}
