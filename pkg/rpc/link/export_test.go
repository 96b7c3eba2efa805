package link

// Linked reports whether new streams use links.
func (u *UpgradedConn) Linked() bool {
	cc := u.over.Load()
	if cc == nil {
		return false
	}
	c, _, _ := cc.choose(false)
	return c != nil
}
