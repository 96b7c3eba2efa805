package toolcall

import (
	"regexp"
	"strings"
)

// writtenCall matches a call of get_weather that a chat template has written as JSON: what precedes
// it, the bracket of a list, the name of the member with the arguments, and what follows.
var writtenCall = regexp.MustCompile(`(?s)^(.*?)(\[?)\{[^{}]*"(?:tool_)?name"\s*:\s*"get_weather"\s*,\s*"(arguments|parameters|args)"\s*:\s*\{[^{}]*"Paris"[^{}]*\}[^{}]*\}\s*\]?(.*)$`)

// derived returns the format of a call that a chat template has written as JSON between texts that no
// format of the table has, or nil.
func derived(call string) *Format {
	parts := writtenCall.FindStringSubmatch(call)
	if parts == nil {
		return nil
	}
	before, list, member := parts[1], parts[2], parts[3]
	open, end := strings.TrimSpace(before), strings.TrimSpace(parts[4])
	open = open[strings.LastIndexByte(open, '\n')+1:] // reasoning may stand in the lines before
	end, _, _ = strings.Cut(end, "\n")
	if len(open) > maxWord || len(end) > maxWord {
		return nil
	}
	t := tags{first: open == ""}
	if open != "" {
		t.open = []string{open}
		open = before[strings.LastIndex(before, open):]
	}
	if end != "" {
		t.close = []string{end}
	}
	return tagged("json "+strings.TrimSpace(open)+" "+end, "^$", t, func(tool string) (string, string) {
		return open + list + `{"name": "` + tool + `", "` + member + `": `, "}" + strings.ReplaceAll(list, "[", "]") + end
	})
}
