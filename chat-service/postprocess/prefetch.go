package postprocess

import "github.com/whence-dev/whence/internal/prefetch"

// Touched implements prefetch.Toucher.
func (p *Processor) Touched(by *prefetch.List) {
	by.Add(prefetch.Of(p), prefetch.Of(p.decoder), prefetch.Of(p.stop), prefetch.Of(p.reason), prefetch.Of(p.delta.last))
}
