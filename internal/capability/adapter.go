package capability

import "github.com/whence-dev/whence/pkg/streamerr"

// NoAdapters returns the error for a request that names an adapter that the engine would not use.
// engine is the engine's make.
func NoAdapters(engine, adapter string) *streamerr.Error {
	return streamerr.InvalidParam("model", "%.128q is an adapter, and the engine (%s) has no adapters that a request can name", adapter, engine)
}
