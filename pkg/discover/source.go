// Package discover finds the addresses of services, and keeps the last addresses while a source
// does not answer.
//
// A Source is a static list, a DNS name that is resolved periodically, or an etcd prefix under
// which services register themselves. A Registration is the other side of that prefix: an entry
// that lives as long as its process.
//
// Deliberately absent: health checks, because the users of an address know more about its health. They say
// whether a service answers whose lease has ended.
package discover

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync/atomic"
)

// A Target is a discovered service.
type Target struct {
	Addr  string // host:port
	Model string // the served model, if the source knows it
}

// A Source provides the addresses of services.
type Source struct {
	text   string // as configured
	static []string
	// watch calls found with all targets, first when they are known and then when they change,
	// until ctx is done or the source fails. It returns the error. After a failure it is called
	// again, with the last targets. alive is that of Watch.
	watch func(ctx context.Context, last []Target, alive func(addr string) bool, found func([]Target)) error

	unanswered atomic.Bool
}

// Forms lists the syntax of sources, for the help of flags.
const Forms = "host:port, several with commas between them, dns:///name:port, srv:///_service._tcp.name, or etcd://host:2379,host2:2379/prefix (etcds:// with TLS)"

// Parse parses a source in one of the Forms.
func Parse(text string) (*Source, error) {
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok {
		return parseStatic(text)
	}
	authority, name, _ := strings.Cut(rest, "/")
	s := &Source{text: text}
	switch scheme {
	case "dns":
		host, port, err := net.SplitHostPort(name)
		if err != nil {
			return nil, err
		}
		if host == "" || port == "" {
			return nil, fmt.Errorf("%s has no name and port, as in dns:///workers:8082", text)
		}
		s.watch = dns{resolver(authority), host, port}.watch
	case "srv":
		if name == "" {
			return nil, fmt.Errorf("%s has no name, as in srv:///_grpc._tcp.workers", text)
		}
		s.watch = dns{resolver(authority), name, ""}.watch
	case plainEtcd, secureEtcd:
		where, err := parseEtcd(scheme, authority, name)
		if err != nil {
			return nil, err
		}
		s.watch = where.watch
	default:
		return nil, fmt.Errorf("%.64q is not a supported form of discovery; the forms are %s", scheme+"://", Forms)
	}
	return s, nil
}

func parseStatic(text string) (*Source, error) {
	s := &Source{text: text}
	for addr := range strings.SplitSeq(text, ",") {
		addr = strings.TrimSpace(addr)
		if _, _, err := net.SplitHostPort(addr); err != nil {
			return nil, err
		}
		if slices.Contains(s.static, addr) {
			return nil, fmt.Errorf("%s appears twice", addr)
		}
		s.static = append(s.static, addr)
	}
	return s, nil
}

// Static returns the addresses of a source that is a list, and nil for other sources.
func (s *Source) Static() []string { return s.static }

// String returns the source as configured.
func (s *Source) String() string { return s.text }

// Watch calls found with all targets, first when they are known and then whenever they change,
// until ctx is done. While the source does not answer, its last targets remain; log gets a line
// when that begins and when it ends. A target also remains if its lease in etcd has ended, as long as
// alive reports that the service answers.
func (s *Source) Watch(ctx context.Context, log *slog.Logger, alive func(addr string) bool, found func([]Target)) {
	if s.static != nil {
		found(targets(s.static))
		<-ctx.Done()
		return
	}
	log = log.With("source", s.text)
	var last []Target
	known := false
	for {
		err := s.watch(ctx, last, alive, func(all []Target) {
			if s.unanswered.Swap(false) {
				log.Info("discovery answers again", "found", len(all))
			}
			if known && slices.Equal(all, last) {
				return
			}
			known, last = true, all
			log.Info("discovery has found services", "found", len(all))
			found(all)
		})
		if ctx.Err() != nil {
			return
		}
		if !s.unanswered.Swap(true) {
			log.Warn("discovery does not answer: the last targets remain in use", "found", len(last), "err", err)
		}
		if !pause(ctx, retryEvery) {
			return
		}
	}
}

// Answers reports whether the source answered the last request.
func (s *Source) Answers() bool { return !s.unanswered.Load() }

func targets(addrs []string) []Target {
	all := make([]Target, len(addrs))
	for i, addr := range addrs {
		all[i].Addr = addr
	}
	return all
}
