package stand

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/whence-dev/whence/bench/process"
)

// A Service is one process of Whence.
type Service struct {
	*process.Process // nil before the first launch
	Addr             string
	metrics          string
	links            string // "" for an api-service
	kind             string
	args             []string
	generation       int // the number of launches
}

// Launch starts the process of a service, for the first time or again.
func (s *Stand) Launch(p *Service) (err error) {
	if p.Process, err = process.Start(s.builds.Dir, p.kind, s.builds.Program(p.kind), p.args...); err != nil {
		return err
	}
	p.generation++
	p.Admin = p.metrics
	return p.Listening(p.Addr)
}

// Terminate sends SIGTERM and returns the time until the process has ended.
func (p *Service) Terminate() (time.Duration, error) {
	at := time.Now()
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return 0, err
	}
	select {
	case <-p.Exited():
		return time.Since(at), nil
	case <-time.After(Within):
		return 0, fmt.Errorf("%s has not ended within %v of SIGTERM", p.Name, Within)
	}
}

// Scrape returns the sum of the service's samples whose lines begin with a prefix.
func (p *Service) Scrape(ctx context.Context, prefix string) (sum float64, err error) {
	text, err := p.samples(ctx)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, prefix) {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndexByte(line, ' '):]), 64)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

// samples returns all samples of the service, in Prometheus' text format.
func (p *Service) samples(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second) // a frozen process does not answer
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.metrics+"/metrics", nil)
	if err != nil {
		return "", err
	}
	transport := &http.Transport{DisableKeepAlives: true}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end
	text, err := io.ReadAll(resp.Body)
	return string(text), err
}

// A Usage is the number of goroutines and of open descriptors of a process.
type Usage struct {
	Goroutines, Descriptors int
	generation              int
}

// Usage returns the current usage of the service.
func (p *Service) Usage(ctx context.Context) (Usage, error) {
	goroutines, err := p.Scrape(ctx, "go_goroutines ")
	files, e := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.Pid()))
	return Usage{int(goroutines), len(files), p.generation}, errors.Join(err, e)
}

// Since returns the growth since an earlier usage. There is none if the process was restarted since.
func (u Usage) Since(earlier Usage) Usage {
	if u.generation != earlier.generation {
		return Usage{}
	}
	return Usage{u.Goroutines - earlier.Goroutines, u.Descriptors - earlier.Descriptors, u.generation}
}
