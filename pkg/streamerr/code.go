package streamerr

import "strings"

// maxCode bounds a code, in bytes.
const maxCode = 64

// CleanCode returns code if it is valid in an Error: 1 to 64 letters, digits and the characters "_", "-" and ".", and
// not a number. For anything else it returns "". Codes come from servers and are passed on to clients, so only
// identifiers are kept.
func CleanCode(code string) string {
	if len(code) > maxCode || strings.Trim(code, "0123456789-.") == "" || strings.ContainsFunc(code, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '-' && r != '.'
	}) {
		return ""
	}
	return code
}
