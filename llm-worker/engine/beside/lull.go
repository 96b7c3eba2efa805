package beside

import (
	"time"

	"github.com/whence-dev/whence/pkg/streamerr"
)

const (
	// suspectAfter is the silence after which a server with unanswered requests is tried.
	suspectAfter = TryTimeout
	// maxSilence is the silence after which a server that does not answer a trial, either, is unhealthy. By default
	// a stream waits about as long for its first token, so every stream on such a server would fail.
	maxSilence = 2 * time.Minute
)

// A lull is a time in which a server has unanswered requests and answers nothing. A blocked server accepts
// requests and answers probes, but is silent forever. A busy server answers other requests: an answer to another
// stream of this engine ends the lull, and so does progress for other clients (ServerLoad.Done).
type lull struct {
	answers uint64    // Engine.answers at the last update
	since   time.Time // zero while nothing is unanswered
}

// update returns the length of the silence. asked reports whether requests have been unanswered since the time
// at.
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

// A lateTrial is the error of a trial that a server did not answer in time: the server is busy, or blocked.
type lateTrial struct{ cause error }

func (t *lateTrial) Error() string { return "the trial was not answered: " + t.cause.Error() }

func (t *lateTrial) Unwrap() error { return t.cause }

// blocked returns the error of a server that has been silent for too long.
func blocked(silent time.Duration) error {
	return Fail(streamerr.Unavailable, nil, "the server that generates accepts requests, but has answered none of them for %v, and no trial either: it may be blocked, and need a restart", silent.Round(time.Second))
}
