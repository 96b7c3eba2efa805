package client

import (
	"io"
	"net/http"
)

// Say sends a text in pieces, and reads until the other side closes the connection. It returns the
// statuses of the answers.
func (l *Line) Say(text string, piece int) (answers []int) {
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for text != "" {
			n := min(piece, len(text))
			if _, err := l.wire.Write([]byte(text[:n])); err != nil {
				return
			}
			text = text[n:]
		}
	}()
	for {
		resp, err := http.ReadResponse(l.in, nil)
		if err != nil {
			break
		}
		answers = append(answers, resp.StatusCode)
		_, _ = io.Copy(io.Discard, resp.Body) // the next read says whether it was whole
		_ = resp.Body.Close()
	}
	l.hangUp()
	<-sent
	return answers
}
