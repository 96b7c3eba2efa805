package models

import (
	"bytes"
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// readEvery is how often a models file is read. The file is small, and its content is a more
// reliable sign of change than its time or inode, also in a cluster's volumes, where directories
// are swapped.
const readEvery = time.Second

// A File holds the cards of a YAML file.
type File struct {
	Path     string
	Defaults Card // values of missing keys

	text    []byte // as of the last Load
	missing bool   // as of the last call of changed
}

// Check reports what is wrong with the file. It does not read the directories of the models.
func (f *File) Check() error {
	text, err := read(f.Path)
	if err != nil {
		return err
	}
	_, err = parse(text, f.Path, f.Defaults)
	return err
}

// Load makes the models of r those of the file. It downloads files of models that the cache of the
// Hugging Face hub lacks, unless the cards forbid it.
func (f *File) Load(ctx context.Context, r *Registry) error {
	text, err := read(f.Path)
	f.text = text
	if err != nil {
		return err
	}
	cards, err := parse(text, f.Path, f.Defaults)
	if err != nil {
		return err
	}
	for i := range cards {
		if err := cards[i].resolve(ctx, r.log); err != nil {
			return err
		}
	}
	return r.Set(cards)
}

// Follow reloads the file whenever it has changed, and on SIGHUP (for changes of files that it
// names), until ctx is done. If the cards cannot be served, the previous models stay. loaded gets
// the outcome of each load, after the log.
func (f *File) Follow(ctx context.Context, r *Registry, loaded func(taken bool)) {
	hup := make(chan os.Signal, 1) // a signal that arrives meanwhile would find the same content
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	tick := time.NewTicker(readEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-hup:
		case <-tick.C:
			if !f.changed() {
				continue
			}
		}
		err := f.Load(ctx, r)
		if err != nil {
			r.log.Error("models are refused, and the previous models stay", "file", f.Path, "err", err)
		} else {
			r.log.Info("models are loaded", "file", f.Path, "models", len(r.Models()))
		}
		loaded(err == nil)
	}
}

// changed reports whether the file has another content than at the last Load. A file that is missing
// has changed once.
func (f *File) changed() bool {
	text, err := read(f.Path)
	was := f.missing
	if f.missing = err != nil; f.missing {
		return !was
	}
	return !bytes.Equal(text, f.text)
}
