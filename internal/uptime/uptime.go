// Package uptime measures intervals within a process. Differences of Unix times do not: they jump when
// the machine's clock is set.
package uptime

import "time"

var start = time.Now()

// Now returns the time since the process began. It is never 0, and no change of the machine's clock
// affects it.
func Now() time.Duration { return max(1, time.Since(start)) }
