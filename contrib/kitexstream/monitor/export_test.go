package monitor

// Detached reports whether the context of a call has outlived that of its handler.
var Detached = detached
