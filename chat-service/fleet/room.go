package fleet

// Room returns how many of this process's streams the healthy workers have places for, those that are taken included; negative
// while none is healthy, or one of them does not say.
func (f *Fleet) Room() int {
	room, healthy := 0, 0
	for _, w := range f.Members() {
		info := w.info.Load()
		if !Answers(info) {
			continue
		}
		healthy++
		places := info.GetLoad().GetMaxRunning()
		if places == 0 {
			return -1
		}
		room += max(0, int(places)-int(w.others.Load()))
	}
	if healthy == 0 {
		return -1
	}
	return room
}
