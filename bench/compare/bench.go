package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/whence-dev/whence/bench/paced"
	"github.com/whence-dev/whence/lab"
)

// A bench holds the resources of a comparison.
type bench struct {
	dir        string // files of this run
	self       string // this command
	bin, other string // directories of Whence's commands: of this checkout, and of another one or ""
	model      string // directory
	files      uint64 // open files that a process may have
	most       int    // maximum number of streams of a scenario
	options    *options
	engine     *engine
}

// newBench builds the compared systems and starts the engine.
func newBench(o *options, chosen []scenario) (b *bench, err error) {
	b = &bench{options: o}
	for _, s := range chosen {
		b.most = max(b.most, s.streams+s.unread)
	}
	if b.dir, err = os.MkdirTemp("", "whence-compare-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			b.close()
		}
	}()
	if err := os.Chmod(b.dir, 0o755); err != nil { //nolint:gosec // nginx's workers may run as another user
		return nil, err
	}
	if b.self, err = os.Executable(); err != nil {
		return nil, err
	}
	if b.files, err = lab.RaiseFileLimit(); err != nil {
		return nil, err
	}
	root, err := command("", "go", "list", "-m", "-f", "{{.Dir}}")
	if err != nil {
		return nil, err
	}
	if b.bin, err = b.build(root, "bin"); err != nil {
		return nil, err
	}
	if o.against != "" {
		if b.other, err = b.build(o.against, "other"); err != nil {
			return nil, err
		}
	}
	b.model = filepath.Join(b.dir, paced.Model)
	if err := os.Mkdir(b.model, 0o700); err != nil {
		return nil, err
	}
	if err := paced.WriteModel(b.model); err != nil {
		return nil, err
	}
	b.engine, err = startEngine(b)
	return b, err
}

// close ends the engine and removes the files.
func (b *bench) close() {
	if b.engine != nil {
		b.engine.End()
	}
	_ = os.RemoveAll(b.dir) // of the system's temporary directory
}

// streamsAtMost returns the number of concurrent streams that a system must accept.
func (b *bench) streamsAtMost() int { return b.most + openClients }

// build builds the commands of a checkout.
func (b *bench) build(root, name string) (string, error) {
	dir := filepath.Join(b.dir, name)
	return dir, lab.Build(context.Background(), root, dir, nil, ".", lab.APIService, lab.ChatService)
}

// command runs a command in a directory and returns its trimmed output.
func command(dir string, args ...string) (string, error) {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

// compare runs all scenarios. A system that does not start, such as a proxy that is not installed,
// is left out and listed.
func (b *bench) compare(ctx context.Context, chosen []scenario) (*report, error) {
	rep := b.newReport()
	for i := range chosen {
		s := &chosen[i]
		if err := b.scenario(ctx, s, rep); err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
	}
	rep.finish(chosen)
	return rep, nil
}

// scenario runs the rounds of one scenario. Each round begins with a different system.
func (b *bench) scenario(ctx context.Context, s *scenario, rep *report) error {
	rounds, window := b.options.times()
	var systems []system
	for _, sys := range b.systems() {
		if b.options.compares(sys.name) && !rep.missing(sys.name) {
			systems = append(systems, sys)
		}
	}
	running := map[string]*deployment{}
	defer func() {
		for _, r := range running {
			r.end()
		}
	}()
	for round := range rounds {
		for i := range systems {
			sys := &systems[(i+round)%len(systems)]
			if r := running[sys.name]; r != nil && s.memory {
				r.end()
				delete(running, sys.name)
			}
			if rep.missing(sys.name) {
				continue
			}
			r := running[sys.name]
			if r == nil {
				var err error
				if r, err = sys.start(b); err != nil {
					rep.leaveOut(sys.name, err)
					continue
				}
				running[sys.name] = r
			}
			fmt.Fprintf(os.Stderr, "%s, round %d of %d: %s\n", s.name, round+1, rounds, sys.name)
			c, err := b.measure(ctx, s, sys, r, window)
			if err != nil {
				return fmt.Errorf("%s: %w", sys.name, err)
			}
			c.Round = round
			rep.Cells = append(rep.Cells, c)
		}
	}
	return nil
}
