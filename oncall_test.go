package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

const (
	runbook = "docs/howto/on-call.md"
	alerts  = "deploy/prometheus/rules.yml"
)

var (
	alertName  = regexp.MustCompile(`(?m)^ *- alert: (\w+)$`)
	runbookURL = regexp.MustCompile(`(?m)^ *runbook_url: '?https://github\.com/whence-dev/whence/blob/main/` + regexp.QuoteMeta(runbook) + `#(.*?)'?$`)
)

// wholeCommand matches a first command, which is on one line so that it can be pasted.
var wholeCommand = regexp.MustCompile("(?m)^- \\*\\*First command:\\*\\* `[^`\n]+`$")

// runbookLines are what each section of the runbook says, in this order.
var runbookLines = []string{"- **Means:** ", "- **Who:** ", "- **First command:** `", "- **Usual causes:** ", "- **Do:** "}

// sections returns the sections of a page below its headings of the third level, by anchor.
func sections(page string) map[string]string {
	all := map[string]string{}
	for _, section := range regexp.MustCompile(`(?m)^##+ `).Split(page, -1)[1:] {
		title, text, _ := strings.Cut(section, "\n")
		all[strings.ToLower(title)] = text
	}
	return all
}

// TestEachReasonAndEachAlertHasItsRunbook: whoever is paged finds the reason of the endings, or the alert,
// as a heading of the runbook, with the same five lines. The URL of each alert leads to its heading.
func TestEachReasonAndEachAlertHasItsRunbook(t *testing.T) {
	page, err := os.ReadFile(runbook)
	if err != nil {
		t.Fatal(err)
	}
	rules, err := os.ReadFile(alerts)
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for n := range streamv1.Reason_name {
		if r := streamerr.Reason(n); r != streamerr.Unspecified {
			want = append(want, r.String())
		}
	}
	names, urls := alertName.FindAllSubmatch(rules, -1), runbookURL.FindAllSubmatch(rules, -1)
	if len(names) == 0 || len(names) != len(urls) {
		t.Fatalf("%d alerts have %d URLs of %s", len(names), len(urls), runbook)
	}
	for i, name := range names {
		alert := strings.ToLower(string(name[1]))
		want = append(want, alert)
		// A reason is a heading, too.
		if to := string(urls[i][1]); to != alert && to != "{{ $labels.reason }}" {
			t.Errorf("the URL of %s leads to #%s", name[1], to)
		}
	}
	have := sections(string(page))
	for _, anchor := range want {
		if !slices.Contains(anchors(string(page)), anchor) {
			t.Errorf("%s has no heading with the anchor %q", runbook, anchor)
			continue
		}
		rest := have[anchor]
		if !wholeCommand.MatchString(rest) {
			t.Errorf("%s: the first command of %s is not one line", runbook, anchor)
		}
		for _, line := range runbookLines {
			_, after, found := strings.Cut(rest, "\n"+line)
			if !found {
				t.Errorf("%s: %s has no line %q in its place", runbook, anchor, line)
			}
			rest = "\n" + after
		}
	}
}
