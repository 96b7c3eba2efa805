package main

import (
	"context"
	"slices"

	"github.com/whence-dev/whence/bench/trust/stand"
)

// A row is one fault of the table.
type row struct {
	name    string
	layout  stand.Layout
	prepare func(*trial, *stand.Layout) error // starts what the services depend on, and adds their flags; may be nil
	kept    bool                              // the streams are kept in Redis and read at another edge
	tokens  int                               // of each stream; 0 means that no streams run
	// play injects the fault while the streams of the trial run, and returns the figures of the row.
	// trial.common adds the figures that every row has.
	play func(ctx context.Context, t *trial) ([]finding, error)
	// spared means that every stream must complete.
	spared bool
}

// rows lists the faults, with the bounds of docs/explanation/reliability.md.
var rows = slices.Concat(clientRows, workerRows, chatRows, edgeRows, networkRows, restartRows, overloadRows, dependencyRows)
