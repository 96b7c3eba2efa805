package prompt

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"slices"
)

// effortVariable is the variable of templates that sets how much a model reasons.
const effortVariable = "reasoning_effort"

// noEffort is the effort that turns thinking off.
const noEffort = "none"

// ladder are the known values of effortVariable, the weakest first.
var ladder = []string{noEffort, "minimal", "low", "medium", "high", "xhigh", "max"}

// efforts returns the values that the template takes, or nil if it takes all of them. Templates
// refuse others than those that their model was trained on.
func (p *prober) efforts() []string {
	accepted := []string{}
	for _, effort := range ladder {
		if _, ok := p.try(withEffort(effort)); ok {
			accepted = append(accepted, effort)
		}
	}
	if len(accepted) == len(ladder) {
		return nil
	}
	return accepted
}

// withEffort returns a conversation with an effort.
func withEffort(effort string) Input {
	return Input{Messages: turns(roleUser, probeA), AddGenerationPrompt: true, Variables: `{"` + effortVariable + `":` + quote(effort) + `}`}
}

// switches returns the variables that turn thinking off.
func (p *prober) switches() (all []string) {
	for _, name := range thinkingVariables {
		with := func(value string) (string, bool) {
			return p.try(Input{Messages: turns(roleUser, probeA), AddGenerationPrompt: true, Variables: `{"` + name + `":` + value + `}`})
		}
		off, ok := with("false")
		if on, _ := with("true"); ok && on != off {
			all = append(all, name)
		}
	}
	return all
}

// thinkingVariables are the variables of templates that turn thinking on and off.
var thinkingVariables = []string{"enable_thinking", "thinking"}

// effective returns the variables of a request in the form that the template knows. Clients send one of
// thinkingVariables, and the template may know another. An effort that the template refuses becomes
// the nearest one, the weaker of two, or none; the effort "none" turns thinking off.
func (t *Template) effective(ctx context.Context, variables string) string {
	if variables == "" {
		return ""
	}
	members := map[string]json.RawMessage{}
	if json.Unmarshal([]byte(variables), &members) != nil {
		return variables // is refused later
	}
	before := maps.Clone(members)
	var effort string
	hasEffort := json.Unmarshal(members[effortVariable], &effort) == nil
	wish := json.RawMessage(nil)
	if effort == noEffort {
		wish = json.RawMessage("false")
	}
	for _, name := range thinkingVariables {
		if value, set := members[name]; set {
			wish = value
			break
		}
	}
	for _, name := range t.traits.Switches {
		if _, set := members[name]; wish != nil && !set {
			members[name] = wish
		}
	}
	if hasEffort {
		taken := t.nearest(ctx, effort)
		if effort == noEffort && taken != effort && len(t.traits.Switches) > 0 {
			taken = ""
		}
		delete(members, effortVariable)
		if taken != "" {
			members[effortVariable] = json.RawMessage(quote(taken))
		}
	}
	same := func(a, b json.RawMessage) bool { return bytes.Equal(a, b) }
	if maps.EqualFunc(members, before, same) {
		return variables
	}
	text, err := json.Marshal(members)
	if err != nil {
		return variables // cannot happen: the members were parsed
	}
	return string(text)
}

// nearest returns the effort that the template takes instead of one, or "" for none.
func (t *Template) nearest(ctx context.Context, asked string) string {
	at := slices.Index(ladder, asked)
	switch {
	case at < 0:
		if _, err := t.execute(ctx, withEffort(asked), nil, t.traits.Form); err != nil {
			return ""
		}
		return asked
	case t.traits.Efforts == nil || slices.Contains(t.traits.Efforts, asked):
		return asked
	}
	best, distance := "", len(ladder)
	for _, effort := range t.traits.Efforts {
		if d := slices.Index(ladder, effort) - at; max(d, -d) < distance {
			best, distance = effort, max(d, -d)
		}
	}
	return best
}
