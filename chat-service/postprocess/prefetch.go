package postprocess

import "github.com/whence-dev/whence/internal/prefetch"

// Touched implements prefetch.Toucher.
func (p *Processor) Touched(to *prefetch.List) {
	to.Add(prefetch.Of(p), prefetch.Of(p.decoder), prefetch.Of(p.stop), prefetch.Of(p.reason))
}
