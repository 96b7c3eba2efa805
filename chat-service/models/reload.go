package models

import (
	"bytes"
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// readEvery is how often a file of cards is read. It is small, and its text says more surely than its time or its inode whether it
// is another one, in the volumes of a cluster, too, where directories are swapped under it.
const readEvery = time.Second

// A File is cards in YAML.
type File struct {
	Path     string
	Defaults Card // what cards leave out

	text []byte // as it was read last
}

// Load makes the models of r those of the file.
func (f *File) Load(r *Registry) error {
	text, err := read(f.Path)
	f.text = text
	if err != nil {
		return err
	}
	cards, err := parse(text, f.Path, f.Defaults)
	if err != nil {
		return err
	}
	return r.Set(cards)
}

// Follow loads the file again whenever it has changed, and on SIGHUP, which is for files that it names, until ctx is done. One
// that cannot be served is refused, and what was served before goes on. loaded is told of each, after the log.
func (f *File) Follow(ctx context.Context, r *Registry, loaded func(taken bool)) {
	hup := make(chan os.Signal, 1) // one that comes meanwhile would find the same
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	tick := time.NewTicker(readEvery)
	defer tick.Stop()
	missing := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-hup:
		case <-tick.C:
			text, err := read(f.Path)
			was := missing
			missing = err != nil
			if missing && was || !missing && bytes.Equal(text, f.text) {
				continue
			}
		}
		err := f.Load(r)
		if err != nil {
			r.log.Error("models are refused, what was served before goes on", "file", f.Path, "err", err)
		} else {
			r.log.Info("models are loaded", "file", f.Path, "models", len(r.Models()))
		}
		loaded(err == nil)
	}
}
