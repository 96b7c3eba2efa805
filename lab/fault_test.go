package lab

import (
	"slices"
	"testing"
)

// TestEndingsTellTheirPath: the statement of a hop has the path from the origin to that hop, down or up
// the chain.
func TestEndingsTellTheirPath(t *testing.T) {
	for _, c := range []struct {
		Ending
		want map[string]Statement
	}{
		{Ending{Reason: "client_gone", Origin: "client > api-service/0"}, map[string]Statement{
			Edge0: "client_gone: client > api-service/0", Worker0: "client_gone: client > api-service/0 > chat-service > llm-worker/0",
		}},
		{Ending{Reason: "engine_failed", Origin: "engine > llm-worker/0"}, map[string]Statement{
			Edge0: "engine_failed: engine > llm-worker/0 > chat-service > api-service/0", Worker0: "engine_failed: engine > llm-worker/0",
		}},
		{Ending{Reason: "deadline", Origin: ChatService}, map[string]Statement{
			Edge0: "deadline: chat-service > api-service/0", ChatService: "deadline: chat-service", Worker0: "deadline: chat-service > llm-worker/0",
		}},
	} {
		for hop, want := range c.want {
			if got := c.Want(hop); got != want {
				t.Errorf("%s of %s: %q, want %q", hop, c.Origin, got, want)
			}
		}
	}
}

// TestGatewayDiesAsOne: what ends one of its two hops ends the other one.
func TestGatewayDiesAsOne(t *testing.T) {
	for name, want := range map[string]struct {
		witnesses []string
		leaving   []string
		none      bool
	}{
		"api-service is killed":  {witnesses: []string{Worker0}},
		"api-service drains":     {witnesses: chain, leaving: []string{Edge0, ChatService}},
		"chat-service is killed": {none: true},
		"llm-worker is killed":   {witnesses: []string{Edge0, ChatService}},
	} {
		f, ok := FaultNamed(name)
		if !ok {
			t.Fatalf("the catalogue has no %q", name)
		}
		joined, ok := f.InGateway()
		if ok == want.none {
			t.Errorf("%s: exists for a gateway: %t", name, ok)
			continue
		}
		var leaving []string
		for _, hop := range chain {
			if joined.IsLeaving(hop) {
				leaving = append(leaving, hop)
			}
		}
		if ok && !slices.Equal(joined.Witnesses(), want.witnesses) || !slices.Equal(leaving, want.leaving) {
			t.Errorf("%s: witnesses %v, leaving %v", name, joined.Witnesses(), leaving)
		}
	}
}

// TestFaultsOfTheCatalogueAreComplete: names are unique, and every ending has an origin on its way.
func TestFaultsOfTheCatalogueAreComplete(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range Faults {
		if seen[f.Name] {
			t.Errorf("two faults are called %q", f.Name)
		}
		seen[f.Name] = true
		if f.Reason == "" && f.Bounds == nil {
			t.Errorf("%s: no observer is named", f.Name)
		}
		if f.Reason == "" {
			continue
		}
		origin := way(f.Origin)
		if !slices.Contains(chain, origin[len(origin)-1]) || len(f.Witnesses()) == 0 {
			t.Errorf("%s: origin %q, witnesses %v", f.Name, f.Origin, f.Witnesses())
		}
	}
}
