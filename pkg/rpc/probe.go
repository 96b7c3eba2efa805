package rpc

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// maxProblem bounds what a peer's words add to a problem, in bytes.
const maxProblem = 300

// Unreachable says in a few words why the connection to a peer failed, such as "connection refused". It names no addresses, for
// clients may read it; they stand in what libraries say before these words.
func Unreachable(err error) string {
	text := strings.TrimRight(status.Convert(err).Message(), "\"' ")
	if at := strings.LastIndex(text, ": "); at >= 0 {
		text = text[at+2:]
	}
	return clip(strings.Trim(text, "\"' "))
}

// ProbeFailure says in words why a peer did not answer a health probe within timeout. It names no addresses.
func ProbeFailure(err error, timeout time.Duration) string {
	switch code := status.Code(err); {
	case code == codes.DeadlineExceeded || errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("it did not answer within %v", timeout)
	case code == codes.Unavailable:
		return "it cannot be reached: " + Unreachable(err)
	default:
		return clip(status.Convert(err).Message())
	}
}

func clip(text string) string {
	n := len(text)
	if n <= maxProblem {
		return text
	}
	for n = maxProblem; !utf8.RuneStart(text[n]); n-- {
	}
	return text[:n] + "…"
}
