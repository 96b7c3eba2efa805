package ledger

// Owed returns the number of ended streams whose usage record waits.
func (l *Ledger) Owed() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.owed)
}
