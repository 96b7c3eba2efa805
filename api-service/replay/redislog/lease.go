package redislog

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// DefaultLease is the default of Config.Lease.
const DefaultLease = time.Second

// Bounds of Config.Lease.
const (
	MinLease = 100 * time.Millisecond
	MaxLease = time.Minute
)

// beatsPerLease is how often an instance extends its lease within the time of one lease.
const beatsPerLease = 8

// abandoned is the run that owns the streams that were handed over. It never has a lease.
const abandoned = ""

// keepLease extends the lease of this process until the log is closed, and passes dead instances to
// buryAll. It has a connection of its own, so that it never waits for the writes of streams.
func (l *Log) keepLease() {
	c := coroner{Lease: l.config.Lease}
	tick := time.NewTicker(l.config.Lease / beatsPerLease)
	defer tick.Stop()
	for {
		dead, err := l.beatOnce()
		found := c.Examine(time.Now(), dead, err)
		if slices.Contains(dead, abandoned) && !slices.Contains(found, abandoned) { // handed-over streams are taken over at once
			found = append(found, abandoned)
		}
		l.mu.Lock()
		if err == nil && len(l.unsure) > 0 {
			found = append(found, l.run)
		}
		l.mu.Unlock()
		if len(found) > 0 {
			select {
			case l.dead <- found:
			default: // buryAll is busy; a later beat reports the instances again
			}
		}
		select {
		case <-tick.C:
		case <-l.closing.Done():
			return
		}
	}
}

// beatOnce extends the lease of this process, and returns the runs without a lease.
func (l *Log) beatOnce() (without []string, err error) {
	heir := ""
	if l.inherits() {
		heir = "1"
	}
	without, err = beatScript.Run(l.closing, l.leases, []string{leasesKey, heirsKey, streamsKey(l.run)}, l.run, l.config.Lease.Milliseconds(), heir, liveTTL.Milliseconds()).StringSlice()
	l.answered(err)
	return without, err
}

// leave ends the lease of this process. If the server is down, the lease expires by itself.
func (l *Log) leave() {
	_ = leaveScript.Run(context.Background(), l.leases, []string{leasesKey, heirsKey, streamsKey(l.run)}, l.run).Err()
}

// CheckLease returns an error if a lease is out of bounds.
func CheckLease(d time.Duration) error {
	if d < MinLease || d > MaxLease {
		return fmt.Errorf("a lease of %v is out of range; it must be %v to %v", d, MinLease, MaxLease)
	}
	return nil
}
