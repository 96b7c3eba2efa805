package websocket

import "github.com/whence-dev/whence/pkg/streamerr"

// Close codes of RFC 6455 and its registry.
const (
	normal       = 1000
	brokenFrames = 1002
	badText      = 1007
	brokenRules  = 1008
	tooBig       = 1009
	internal     = 1011
	restart      = 1012
	tryLater     = 1013

	// noCode stands for a close frame without a code, and noFrame for a connection that ended
	// without a close frame. Neither may be sent.
	noCode  = 1005
	noFrame = 1006
)

// firstPrivate is the first close code for private use.
const firstPrivate = 4000

// Code returns the close code of an ending: the registered code if one fits, and otherwise 4000
// plus the number of the reason in whence.stream.v1.Reason. No two reasons have the same code.
func Code(r streamerr.Reason) int {
	switch r {
	case streamerr.Completed:
		return normal
	case streamerr.Internal:
		return internal
	case streamerr.Draining:
		return restart
	case streamerr.Overloaded:
		return tryLater
	default:
		return firstPrivate + int(r)
	}
}
