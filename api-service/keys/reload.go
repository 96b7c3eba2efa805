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

// readEvery is the time between reads of a key file. The file is small, and its text shows changes
// more reliably than its modification time.
const readEvery = time.Second

// Follow reloads the file of a ring whenever it has changed, and on SIGHUP, until ctx is done. An
// invalid file is refused, and the keys stay as they are. Streams of removed keys run to their end.
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
			t := r.table.Load()
			log.Info("keys are loaded", "file", path, "keys", len(t.keys), "issuers", len(t.issuers))
			r.warn(log, path)
		}
	}
}

// warn logs settings of a valid file that are probably mistakes.
func (r *Ring) warn(log *slog.Logger, path string) {
	t := r.table.Load()
	if len(t.keys)+len(t.issuers) == 0 {
		log.Warn("the key file has no keys, so every caller is refused", "file", path)
	}
	if unused := t.unused(); len(unused) > 0 {
		log.Warn("the key file limits tenants that have no keys", "file", path, "tenants", unused)
	}
	if shared := t.claimable(); len(shared) > 0 {
		log.Warn("tokens of an issuer can name tenants that have keys, and then own the streams of these tenants; set tenant_prefix to prevent this", "file", path, "tenants", shared)
	}
}
