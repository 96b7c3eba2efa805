package beside

import (
	"time"

	"github.com/whence-dev/whence/pkg/streamerr"
)

const (
	// suspectAfter is the silence of a server with unanswered requests after which it is tried.
	suspectAfter = TryTimeout
	// maxSilence is the silence after which a server that does not answer its trial either is unhealthy. The first
	// token of a stream may take as long by default, so no stream there would succeed.
	maxSilence = 2 * time.Minute
)

// A lull is the time in which a server answers nothing although it was asked. Some servers fall silent for
// ever, and go on to accept requests and to answer probes. A busy server answers others: what this engine's other
// streams get ends a lull, and so does what the server has counted for other clients (ServerLoad.Done).
type lull struct {
	answers uint64    // Engine.answers at the last update
	since   time.Time // zero while nothing is unanswered
}

// update returns the length of the silence at a time. asked reports whether requests have been unanswered since
// then.
func (l *lull) update(answers uint64, asked bool, at time.Time) time.Duration {
	if answers != l.answers {
		l.answers, l.since = answers, time.Time{}
	}
	if l.since.IsZero() && asked {
		l.since = at
	}
	if l.since.IsZero() {
		return 0
	}
	return time.Since(l.since)
}

// A lateTrial is the error of a trial that a server has not answered in time: it is busy, or blocked.
type lateTrial struct{ cause error }

func (t *lateTrial) Error() string { return "the trial was not answered: " + t.cause.Error() }

func (t *lateTrial) Unwrap() error { return t.cause }

// blocked is why a server cannot be used that has been silent for so long.
func blocked(silent time.Duration) error {
	return Fail(streamerr.Unavailable, nil, "the server that generates accepts requests, and has answered none for %v, nor a trial: it may be blocked, and need a restart", silent.Round(time.Second))
}
