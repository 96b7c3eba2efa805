package streamerr

import "strings"

// maxCode bounds a code, in bytes.
const maxCode = 64

// CleanCode returns code if it can stand in an Error: 1 to 64 letters, digits and the characters "_", "-" and ".", and no number. For
// anything else it returns "". Codes come from servers and become a part of what clients read, so what is no identifier is left out.
func CleanCode(code string) string {
	if len(code) > maxCode || strings.Trim(code, "0123456789-.") == "" || strings.ContainsFunc(code, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '-' && r != '.'
	}) {
		return ""
	}
	return code
}
