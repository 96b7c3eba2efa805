package process

import "time"

var start = time.Now()

// Uptime returns the time since the process began, for intervals within the process: differences of
// Unix times jump when the machine's clock is set. It is never 0.
func Uptime() time.Duration { return max(1, time.Since(start)) }
