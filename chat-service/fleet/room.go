package fleet

// Room returns the number of streams that this process may have on the healthy workers, including
// running streams. places is negative if one of the workers reports no limit. healthy is false
// while no worker takes streams.
func (f *Fleet) Room() (places int, healthy bool) {
	for _, w := range f.Members() {
		info := w.info.Load()
		if !Answers(info) {
			continue
		}
		healthy = true
		all := info.GetLoad().GetMaxRunning()
		if all == 0 {
			return -1, true
		}
		places += max(0, int(all)-int(w.others.Load()))
	}
	return places, healthy
}
