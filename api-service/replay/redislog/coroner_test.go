package redislog

import (
	"errors"
	"slices"
	"testing"
	"time"
)

func TestInstanceIsDeadWithoutALeaseInTwoBeats(t *testing.T) {
	const lease = 4 * time.Second // a beat each second
	down := errors.New("the server is down")
	type beat struct {
		late    time.Duration // how late the beat is
		without []string
		err     error
		dead    []string
	}
	steady := slices.Repeat([]beat{{}}, 9) // two leases and redialPause
	for name, beats := range map[string][]beat{
		"twice":                    append(slices.Clone(steady), beat{without: []string{"a"}}, beat{without: []string{"a", "b"}, dead: []string{"a"}}, beat{without: []string{"b"}, dead: []string{"b"}}),
		"once, and alive again":    append(slices.Clone(steady), beat{without: []string{"a"}}, beat{}, beat{without: []string{"a"}}, beat{}),
		"a new process waits":      {{without: []string{"a"}}, {without: []string{"a"}}, {without: []string{"a"}}},
		"after an outage it waits": append(slices.Clone(steady), beat{err: down}, beat{without: []string{"a"}}, beat{without: []string{"a"}}, beat{without: []string{"a"}}),
		"an outage between":        append(slices.Clone(steady), beat{without: []string{"a"}}, beat{err: down}, beat{without: []string{"a"}}, beat{without: []string{"a"}}),
		"this process had no CPU":  append(slices.Clone(steady), beat{without: []string{"a"}}, beat{without: []string{"a"}, late: 2 * time.Second}, beat{without: []string{"a"}}, beat{without: []string{"a"}}),
	} {
		c, now := coroner{Lease: lease}, time.Unix(0, 0)
		for i, b := range beats {
			now = now.Add(b.late)
			if got := c.Examine(now, b.without, b.err); !slices.Equal(got, b.dead) {
				t.Errorf("%s: beat %d: %q are dead, want %q", name, i, got, b.dead)
			}
			now = now.Add(time.Second)
		}
	}
}
