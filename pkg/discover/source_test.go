package discover

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/whence-dev/whence/internal/logtest"
)

func TestInvalidSourcesAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":                        "missing port",
		"nowhere":                 "missing port",
		"h:1,h:2,h:1":             "h:1 appears twice",
		"dns:///workers":          "missing port",
		"dns://h:53":              "missing port",
		"dns:///:8082":            "no name and port",
		"srv://":                  "no name",
		"etcd://h/p":              "missing port",
		"etcd://h:2379":           "no prefix",
		"etcd://h:2379/":          "no prefix",
		"consul://h:1/p":          `"consul://" is not a supported form of discovery`,
		"etcd://h:2379,/whence/p": "missing port",
	} {
		if s, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v, want %q", text, s, err, want)
		}
	}
}

// A listener keeps the targets that a source has found, and its log.
type listener struct {
	logtest.Log
	mu    sync.Mutex
	found []string
}

func (l *listener) add(all []Target) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var addrs []string
	for _, t := range all {
		addrs = append(addrs, t.Addr)
	}
	l.found = append(l.found, strings.Join(addrs, " "))
}

// last returns the targets that were found last.
func (l *listener) last() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.found) == 0 {
		return ""
	}
	return l.found[len(l.found)-1]
}

func (l *listener) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.found)
}

// follow watches a source of services that answer no probe until the test ends.
func follow(t *testing.T, s *Source) *listener {
	t.Helper()
	return followAlive(t, s, func(string) bool { return false })
}

// followAlive watches a source until the test ends. alive reports whether a service answers.
func followAlive(t *testing.T, s *Source, alive func(addr string) bool) *listener {
	t.Helper()
	l := new(listener)
	ctx, cancel := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	watching.Go(func() { s.Watch(ctx, slog.New(slog.NewTextHandler(l, nil)), alive, l.add) })
	t.Cleanup(func() {
		cancel()
		watching.Wait()
	})
	return l
}

func parse(t *testing.T, text string) *Source {
	t.Helper()
	s, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestListIsFoundUnchanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := parse(t, "b:2, a:1,[::1]:3")
		l := follow(t, s)
		synctest.Wait()
		if l.last() != "b:2 a:1 [::1]:3" || !s.Answers() || len(s.Static()) != 3 {
			t.Error(l.found, s.Static())
		}
	})
}

func TestLastTargetsRemainWhileTheSourceDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers := make(chan []Target) // nil means a failure
		s := &Source{text: "test", watch: func(ctx context.Context, _ []Target, _ func(string) bool, found func([]Target)) error {
			for {
				select {
				case all := <-answers:
					if all == nil {
						return errors.New("nobody there")
					}
					found(all)
				case <-ctx.Done():
					return ctx.Err()
				}
			}
		}}
		l := follow(t, s)
		answers <- targets([]string{"a:1"})
		answers <- targets([]string{"a:1"})
		synctest.Wait()
		if len(l.found) != 1 || !s.Answers() {
			t.Error("unchanged targets were reported again:", l.found)
		}
		for range 3 {
			answers <- nil
			time.Sleep(2 * retryEvery)
		}
		if s.Answers() || l.last() != "a:1" || l.Count("nobody there") != 1 {
			t.Error(l.found, l.String())
		}
		answers <- targets([]string{"a:1"})
		synctest.Wait()
		if !s.Answers() || len(l.found) != 1 || l.Count("discovery answers again") != 1 {
			t.Error(l.found, l.String())
		}
	})
}
