package keys

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// readEvery is how often a key file is read. It is small, and its text says more surely than its time whether it has
// changed.
const readEvery = time.Second

// Follow loads the file of a ring again whenever it has changed, and on SIGHUP, until ctx is done. A file that cannot
// be used is refused, and the keys stay as they are. Streams of keys that are gone run to their end.
func (r *Ring) Follow(ctx context.Context, path string, log *slog.Logger) {
	if r == nil {
		return
	}
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	tick := time.NewTicker(readEvery)
	defer tick.Stop()
	r.warn(log, path)
	missing := false
	for {
		again := false
		select {
		case <-ctx.Done():
			return
		case <-hup:
			again = true
		case <-tick.C:
		}
		text, err := os.ReadFile(path)
		was := missing
		missing = err != nil
		if !again && (missing && was || !missing && bytes.Equal(text, r.text)) {
			continue
		}
		if err == nil {
			r.text = text
			err = r.replace(text)
		}
		if err != nil {
			log.Error("the key file is refused, and the keys stay as they are", "file", path, "err", err)
		} else {
			log.Info("keys are loaded", "file", path, "keys", len(*r.entries.Load()))
			r.warn(log, path)
		}
	}
}

func (r *Ring) replace(text []byte) error {
	entries, unused, err := parse(text)
	if err != nil {
		return err
	}
	r.entries.Store(&entries)
	r.unused = unused
	return nil
}

// warn logs what a valid file may not mean to say.
func (r *Ring) warn(log *slog.Logger, path string) {
	if len(*r.entries.Load()) == 0 {
		log.Warn("the key file has no keys, so every caller is refused", "file", path)
	}
	if len(r.unused) > 0 {
		log.Warn("the key file has limits of tenants to which no key belongs", "file", path, "tenants", r.unused)
	}
}
