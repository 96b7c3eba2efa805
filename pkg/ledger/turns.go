package ledger

import llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"

// turnUsed records the usage of a complete turn. The usage counts for the turn instead of its
// admission, as the usage of the whole conversation does. A turn without a usage counts as it was
// admitted.
func (r *Record) turnUsed(u *llmv1.Usage) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := u.GetPromptTokens(); n > 0 {
		r.prompt = r.turnsPrompt + n
	}
	r.turnsPrompt, r.sentPrompt, r.admitted = r.prompt, 0, false
	if u != nil {
		r.estimated = u.GetEstimated()
	}
	r.turnsEstimated, r.estimated = r.turnsEstimated || r.estimated, false
	if u != nil && u.CachedTokens != nil {
		r.cachedInAll(r.knownCached() + *u.CachedTokens)
	}
}

// cachedInAll records the number of cached tokens of all complete answers. The metrics count the
// tokens that the record does not have yet. mu is held.
func (r *Record) cachedInAll(tokens uint32) {
	known := r.knownCached()
	tokens = max(known, min(tokens, r.prompt))
	r.cached = &tokens
	r.seen.Cached(tokens - known)
}

// knownCached returns the number of cached tokens so far. mu is held.
func (r *Record) knownCached() uint32 {
	if r.cached == nil {
		return 0
	}
	return *r.cached
}
