package edge

import (
	"errors"
	"fmt"

	"github.com/cloudwego/netpoll"

	"github.com/whence-dev/whence/api-service/edge/exchange"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// gone is why a stream ends whose client has closed its connection.
func gone() *streamerr.Error {
	return &streamerr.Error{Reason: streamerr.ClientGone, Path: streamerr.NewPath(exchange.Client), Message: "the client closed its connection"}
}

// vanished makes gone of a message.
func vanished(leave func(*streamerr.Error)) func(message string) {
	return func(message string) {
		g := gone()
		g.Message = message
		leave(g)
	}
}

// unwritten is why a stream ends whose client cannot be written to.
func (e *Edge) unwritten(err error) *streamerr.Error {
	if errors.Is(err, netpoll.ErrWriteTimeout) {
		return &streamerr.Error{Reason: streamerr.SlowReader, Message: fmt.Sprintf("the client did not read for %v", e.config.WriteTimeout), Cause: err}
	}
	g := gone()
	g.Cause = err
	return g
}
