// Package uptime tells the time in the form of a number for intervals within a process. The Unix time
// does not serve for that: somebody may set the machine's clock.
package uptime

import "time"

var start = time.Now()

// Now returns the time since the process began. It is never 0, and no change of the machine's clock
// affects it.
func Now() time.Duration { return max(1, time.Since(start)) }
