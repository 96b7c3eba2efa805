package lab

import (
	"errors"
	"testing"
)

// TestPathWithAServiceThatDoesNotStartEnds: the processes that were started are in the path.
func TestPathWithAServiceThatDoesNotStartEnds(t *testing.T) {
	l := Layout{Workers: 1, Chats: 1, Edges: 1, Own: map[string][]string{"llm-worker/0": {"own"}}}
	var args []string
	p, err := l.Start(t.Context(), func(service string, flags ...string) (*Process, error) {
		if service == ChatService {
			return nil, errors.New("no")
		}
		args = flags
		return Start(Command{Name: service, File: "sh", Args: []string{"-c", `echo '{"msg":"listening","addr":"here"}' >&2; exec sleep 600`}})
	})
	if err == nil || len(p.Workers) != 1 || len(p.Alive()) != 1 || p.Workers[0].Name != "llm-worker/0" || args[len(args)-1] != "own" {
		t.Errorf("%v; %v, started with %q", err, p.All(), args)
	}
	p.End()
	if len(p.Alive()) != 0 {
		t.Error("a process still runs")
	}
}
