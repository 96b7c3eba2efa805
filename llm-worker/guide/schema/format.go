package schema

import (
	"slices"
	"sync"

	"github.com/whence-dev/whence/llm-worker/guide/grammar"
	"github.com/whence-dev/whence/llm-worker/guide/pattern"
)

// A format is a value of the keyword format that guides enforce. JSON Schema lets a validator
// ignore all formats, and guides ignore those that are not listed. A guide may allow fewer texts
// than the format, but no others.
type format struct {
	Name string
	// Limits says which texts of the format guides do not write; "" means none.
	Limits string

	Expression string
	DFA        func() (*grammar.DFA, error) // of the format without other keywords
}

const (
	dateText = `(?:(?:\d{3}[1-9]|\d\d[1-9]0|\d[1-9]00|[1-9]000)-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|02-(?:0[1-9]|1\d|2[0-8]))` +
		`|(?:\d\d(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)-02-29)`
	timeText     = `(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,6})?(?:Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)`
	shortTime    = `T(?:\d{1,9}H(?:\d{1,9}M(?:\d{1,9}S)?)?|\d{1,9}M(?:\d{1,9}S)?|\d{1,9}S)`
	shortDate    = `(?:\d{1,9}Y(?:\d{1,9}M(?:\d{1,9}D)?)?|\d{1,9}M(?:\d{1,9}D)?|\d{1,9}D)`
	labelText    = `[A-Za-z0-9](?:[A-Za-z0-9-]{0,30}[A-Za-z0-9])?`
	mailboxText  = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]"
	octetText    = `(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)`
	hexText      = `[0-9a-fA-F]{1,4}`
	hexTextColon = `(?:` + hexText + `:)`
	colonHexText = `(?::` + hexText + `)`

	// Parts of RFC 3986.
	charText      = `(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})`
	charNoColon   = `(?:[A-Za-z0-9._~!$&'()*+,;=@-]|%[0-9A-Fa-f]{2})`
	rootedPath    = `(?:/` + charText + `*)`
	authorityText = `//[A-Za-z0-9._~-]*(?::\d{1,5})?` + rootedPath + `*`
	suffixText    = `(?:\?(?:` + charText + `|[/?])*)?(?:#(?:` + charText + `|[/?])*)?`
	schemeText    = `[A-Za-z][A-Za-z0-9+.-]{0,30}:`
	absolutePath  = `/(?:` + charText + `+` + rootedPath + `*)?`
	uriText       = schemeText + `(?:` + authorityText + `|` + absolutePath + `|` + charText + `+` + rootedPath + `*)` + suffixText
	relativeText  = `(?:` + authorityText + `|` + absolutePath + `|` + charNoColon + `+` + rootedPath + `*)?` + suffixText
	pointerText   = `(?:/(?:[^/~]|~[01])*)*`
	regexAtom     = `(?:[^\\^$.*+?()[\]{}|]|[.]|\\[dDwWsSnrt.*+?()[\]{}|^$\\/]|\[[A-Za-z0-9_ ]+\])`
)

// formats are the formats that guides enforce.
var formats = func() []*format {
	all := []*format{
		{Name: "date", Limits: "years from 0001 on", Expression: dateText},
		{Name: "time", Limits: "upper case, at most six digits of a second, no leap seconds", Expression: timeText},
		{Name: "date-time", Limits: "as `date` and `time`", Expression: dateText + "T" + timeText},
		{Name: "duration", Limits: "at most nine digits per number", Expression: `P(?:\d{1,9}W|` + shortDate + `(?:` + shortTime + `)?|` + shortTime + `)`},
		{Name: "uuid", Expression: `[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}`},
		{Name: "ipv4", Expression: octetText + `(?:\.` + octetText + `){3}`},
		{Name: "ipv6", Limits: "without an IPv4 part", Expression: hexTextColon + `{7}` + hexText + `|` + hexTextColon + `{1,7}:|` + hexTextColon + `{1,6}:` + hexText +
			`|` + hexTextColon + `{1,5}` + colonHexText + `{1,2}|` + hexTextColon + `{1,4}` + colonHexText + `{1,3}|` + hexTextColon + `{1,3}` + colonHexText + `{1,4}` +
			`|` + hexTextColon + `{1,2}` + colonHexText + `{1,5}|` + hexText + `:` + colonHexText + `{1,6}|:(?:` + colonHexText + `{1,7}|:)`},
		{Name: "email", Limits: "ASCII without quotes, at most 48 characters before the @, and a domain of two to five labels of at most 32 characters, the last one of letters",
			Expression: mailboxText + `{1,32}(?:\.` + mailboxText + `{1,15})?@(?:` + labelText + `\.){1,4}[A-Za-z]{2,24}`},
		{Name: "hostname", Limits: "at most five labels of at most 32 characters", Expression: labelText + `(?:\.` + labelText + `){0,4}`},
		{Name: "uri", Limits: "ASCII, without a user and an address of IPv6", Expression: uriText},
		{Name: "uri-reference", Limits: "as `uri`", Expression: uriText + `|` + relativeText},
		{Name: "json-pointer", Expression: pointerText},
		{Name: "relative-json-pointer", Expression: `(?:0|[1-9]\d{0,8})(?:#|` + pointerText + `)`},
		{Name: "regex", Limits: "a sequence of characters, escapes and sets of letters and digits, each with `*`, `+` or `?`, between `^` and `$`", Expression: `\^?(?:` + regexAtom + `[*+?]?)*\$?`},
	}
	for _, f := range all {
		f.Expression = "^(?:" + f.Expression + ")$"
		f.DFA = sync.OnceValues(func() (*grammar.DFA, error) {
			return pattern.Compile([]pattern.Condition{{Expression: f.Expression}}, 0, -1, new(pattern.NewBudget()))
		})
	}
	return all
}()

// formatNamed returns the format of a name, or nil if guides do not enforce it.
func formatNamed(name string) *format {
	if i := slices.IndexFunc(formats, func(f *format) bool { return f.Name == name }); i >= 0 {
		return formats[i]
	}
	return nil
}
