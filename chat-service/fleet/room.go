package fleet

// Room returns how many streams of this process the healthy workers have places for, running streams included; negative if one of
// the workers does not say. healthy is false while no worker takes streams: there is no room then.
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
