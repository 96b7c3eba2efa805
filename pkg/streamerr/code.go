package streamerr

import "strings"

// Codes of OpenAI's API, which clients act on. A code distinguishes errors with the same Reason.
const (
	// The prompt, or the prompt and the answer, do not fit into the model's context.
	CodeContextLength = "context_length_exceeded"
	CodeModelNotFound = "model_not_found"
	CodeUnknownURL    = "unknown_url"
	CodeInvalidKey    = "invalid_api_key"
	// The caller has reached a limit of its own. The server has capacity.
	CodeRateLimit = "rate_limit_exceeded"
	// No stored response has the id that the request continues.
	CodePreviousNotFound = "previous_response_not_found"
	// A WebSocket has reached its maximum duration.
	CodeSocketLimit = "websocket_connection_limit_reached"

	// Codes of a field, which Param names.
	CodeMissing          = "missing_required_parameter"
	CodeUnknownField     = "unknown_parameter"
	CodeUnsupportedField = "unsupported_parameter"
	CodeUnsupportedValue = "unsupported_value"
	CodeInvalidType      = "invalid_type"
	CodeIntegerBelow     = "integer_below_min_value"
	CodeIntegerAbove     = "integer_above_max_value"
	CodeNumberBelow      = "decimal_below_min_value"
	CodeNumberAbove      = "decimal_above_max_value"

	codeInvalidValue = "invalid_value"
	codeServer       = "server_error"
)

// Types of OpenAI's API, and typeStopped, our own type for streams that were ended on purpose.
const (
	typeInvalid     = "invalid_request_error"
	typeRateLimit   = "rate_limit_error"
	typeQuota       = "insufficient_quota"
	typeUnavailable = "service_unavailable_error"
	typeServer      = "server_error"
	typeStopped     = "stream_error"
)

// quotas are the codes of OpenAI's errors of type typeQuota. A retry of such a request is useless.
var quotas = map[string]bool{
	"insufficient_quota": true, "credit_balance_exhausted": true, "organization_spend_limit_exceeded": true,
	"project_spend_limit_exceeded": true, "organization_usage_limit_exceeded": true,
}

// WithCode returns a copy of e with a code.
func (e *Error) WithCode(code string) *Error {
	c := *e
	c.Code = code
	return &c
}

// Type returns the error.type of OpenAI's error object.
func (e *Error) Type() string {
	if e.Reason == Overloaded && quotas[e.Code] {
		return typeQuota
	}
	return e.Reason.Type()
}

// APICode returns the error.code of OpenAI's error object: e's Code, or else the code that belongs
// to the Reason, or "" if OpenAI's API has no code for the error.
func (e *Error) APICode() string {
	if code := CleanCode(e.Code); code != "" {
		return code
	}
	if e.Reason == Invalid && e.Param != "" {
		return codeInvalidValue
	}
	return e.Reason.forms().word
}

// maxCode bounds a code, in bytes.
const maxCode = 64

// CleanCode returns code if it is valid in an Error: 1 to 64 letters, digits and the characters
// "_", "-" and ".", but not a number. For any other code it returns "". Codes come from servers and
// are passed on to clients, so only identifiers are allowed.
func CleanCode(code string) string {
	if len(code) > maxCode || strings.Trim(code, "0123456789-.") == "" || strings.ContainsFunc(code, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '-' && r != '.'
	}) {
		return ""
	}
	return code
}
