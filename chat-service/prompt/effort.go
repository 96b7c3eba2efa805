package prompt

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/ardanlabs/jinja"
)

// effortVariable is the variable of templates that sets how much a model reasons.
const effortVariable = "reasoning_effort"

// noEffort is the effort that turns thinking off.
const noEffort = "none"

// ladder are the known values of effortVariable, the weakest first.
var ladder = []string{noEffort, "minimal", "low", "medium", "high", "xhigh", "max"}

// efforts returns the values that the template takes, or nil if it takes all of them.
func (t *Template) efforts(ctx context.Context) (accepted []string) {
	if !t.compiled.Mentions(effortVariable) {
		return nil
	}
	accepted = []string{}
	for _, effort := range ladder {
		if t.takesEffort(ctx, effort) {
			accepted = append(accepted, effort)
		}
	}
	if len(accepted) == len(ladder) {
		return nil
	}
	return accepted
}

// takesEffort reports whether the template accepts an effort. Templates refuse others than those that
// their model was trained on.
func (t *Template) takesEffort(ctx context.Context, effort string) bool {
	_, err := t.execute(ctx, Input{Messages: turns(roleUser, probeA), AddGenerationPrompt: true, Variables: `{"` + effortVariable + `":` + quote(effort) + `}`},
		jinja.None(), Form{})
	return err == nil
}

// effective returns the variables of a request with an effort that the template takes: the nearest
// one, the weaker of two. Without any, the effort is left out. The effort "none" turns thinking off.
func (t *Template) effective(ctx context.Context, variables string) string {
	if !strings.Contains(variables, effortVariable) {
		return variables
	}
	members := map[string]json.RawMessage{}
	var asked string
	if json.Unmarshal([]byte(variables), &members) != nil || json.Unmarshal(members[effortVariable], &asked) != nil {
		return variables
	}
	before := len(members)
	takes := t.nearest(ctx, asked)
	if asked == noEffort {
		for _, name := range t.traits.Switches {
			if _, set := members[name]; !set {
				members[name] = json.RawMessage("false")
			}
		}
		if len(t.traits.Switches) > 0 && takes != asked {
			takes = ""
		}
	}
	switch {
	case takes == asked && len(members) == before:
		return variables
	case takes == "":
		delete(members, effortVariable)
	default:
		members[effortVariable] = json.RawMessage(quote(takes))
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
	case at < 0 && t.compiled.Mentions(effortVariable) && !t.takesEffort(ctx, asked):
		return ""
	case at < 0 || t.traits.Efforts == nil || slices.Contains(t.traits.Efforts, asked):
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
