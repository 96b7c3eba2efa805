package e2e

import (
	"sync"
	"testing"

	"github.com/whence-dev/whence/internal/tier"
)

// TestDeadCallersDoNotDisturbOtherCallers: when an api-service is killed, the streams of another
// api-service continue on their worker.
func TestDeadCallersDoNotDisturbOtherCallers(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	w := runFleet(t, 2, flags{worker: []string{"--pace", "40"}})
	for range 4 {
		other := service(t, apiService, "127.0.0.1:0", []string{"--chat", w.chat, "--name", "api-service/other"}, flags{}.all)
		victimPath := &whence{topology: separate, processes: w.processes, api: other.listening(t), chat: w.chat, worker: w.worker, http: w.http}
		var all []*live
		for i := range 8 {
			victimPath.open(t, varied(i)).begun(t)
			all = append(all, w.open(t, usageOf(varied(i))).begun(t))
		}
		other.kill(t)
		var wg sync.WaitGroup
		for _, l := range all {
			wg.Go(func() {
				if p := l.pass(); p.err != nil {
					t.Errorf("stream %s: %v", p.id, p.err)
				}
			})
		}
		wg.Wait()
		for _, l := range all {
			for _, m := range moves(w.why(t, l.id)) {
				t.Errorf("stream %s moved: %+v", l.id, m)
			}
		}
		if t.Failed() {
			return
		}
	}
}
