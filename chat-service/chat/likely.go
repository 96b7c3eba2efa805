package chat

import chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"

// likely holds the log-probabilities of tokens back until their text is shown. A token belongs to the answer if its text
// begins in it; one without text, if more of the answer comes behind it.
type likely struct {
	came, gone int // bytes of text
	waiting    []placed
}

// A placed token is one and where its text begins.
type placed struct {
	at    int
	token *chatv1.TokenLogprob
}

// read takes in the tokens of a delta.
func (l *likely) read(d *chatv1.Delta) {
	at := l.came
	l.came += len(d.GetText())
	for _, token := range d.GetLogprobs() {
		l.waiting = append(l.waiting, placed{min(at, max(l.came-1, 0)), token}) // bytes that are no character are longer as text
		at += len(token.GetBytes())
	}
}

// shown returns the tokens that begin in the text that is shown next.
func (l *likely) shown(text string) (tokens []*chatv1.TokenLogprob) {
	l.gone += len(text)
	n := 0
	for n < len(l.waiting) && l.waiting[n].at < l.gone {
		tokens = append(tokens, l.waiting[n].token)
		n++
	}
	l.waiting = l.waiting[n:]
	return tokens
}

// rest returns those that are left.
func (l *likely) rest() (tokens []*chatv1.TokenLogprob) {
	for _, p := range l.waiting {
		tokens = append(tokens, p.token)
	}
	l.waiting = nil
	return tokens
}
