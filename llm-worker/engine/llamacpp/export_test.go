package llamacpp

import "time"

// ConfirmWithin changes the time in which a stop is confirmed, or not.
func (e *Engine) ConfirmWithin(d time.Duration) { e.slots.within = d }
