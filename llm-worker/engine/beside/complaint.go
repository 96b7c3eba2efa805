package beside

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/whence-dev/whence/pkg/streamerr"
)

// A Complaint is a server's error, in the body of a refusal or within the answer. A field that the
// server omits is zero.
type Complaint struct {
	Message    string
	Status     int    // the HTTP status
	Code       string // the server's error code, such as "context_length_exceeded"
	Type       string // such as "BadRequestError"
	RetryAfter time.Duration
	// Died reports that the process that generates has ended, although the server still answers. Only
	// a Dialect can tell.
	Died bool
	// EndReason and Path are the ending, if the server is a Whence itself. Path is nil for all other servers.
	EndReason streamerr.Reason
	Path      streamerr.Path
}

// ownReasons are the reasons of another Whence that concern only its caller, which is this worker, or only
// that Whence. The status then decides the reason for our caller.
var ownReasons = []streamerr.Reason{
	streamerr.Unspecified, streamerr.Completed, streamerr.ClientGone, streamerr.PeerReset, streamerr.Draining,
	streamerr.Unauthenticated, streamerr.Forbidden,
}

// maxRetryAfter bounds the Retry-After of a server.
const maxRetryAfter = time.Hour

// ReasonOf returns the reason that an HTTP status other than success stands for. A 4xx status
// blames the request, except for the statuses that are about the worker, its account or its
// connection: those are the engine's failure to a client.
func ReasonOf(status int) streamerr.Reason {
	switch status {
	case http.StatusNotFound:
		return streamerr.NotFound
	case http.StatusRequestTimeout, http.StatusGatewayTimeout:
		return streamerr.Deadline
	case http.StatusTooManyRequests:
		return streamerr.Overloaded
	case http.StatusBadGateway, http.StatusServiceUnavailable, statusOverloaded:
		return streamerr.Unavailable
	case http.StatusUnauthorized, http.StatusPaymentRequired, http.StatusProxyAuthRequired, http.StatusTooEarly:
		return streamerr.EngineFailed
	}
	if status >= 400 && status < 500 {
		return streamerr.Invalid
	}
	return streamerr.EngineFailed
}

// statusOverloaded is the answer of some providers while all of their servers are busy.
const statusOverloaded = 529

// reasons maps the error codes and types of known servers, in lower case and without "_" and a
// final "error": OpenAI's and its followers', vLLM's and SGLang's, which are names of Python
// classes, llama.cpp's, and Anthropic's.
var reasons = map[string]streamerr.Reason{
	"badrequest":             streamerr.Invalid,
	"contentfilter":          streamerr.Invalid,
	"contentpolicyviolation": streamerr.Invalid,
	"contextlengthexceeded":  streamerr.Invalid,
	"contextwindowexceeded":  streamerr.Invalid,
	"exceedcontextsize":      streamerr.Invalid,
	"invalidprompt":          streamerr.Invalid,
	"invalidrequest":         streamerr.Invalid,
	"requesttoolarge":        streamerr.Invalid,
	"stringabovemaxlength":   streamerr.Invalid,
	"unprocessableentity":    streamerr.Invalid,
	"validation":             streamerr.Invalid,
	"value":                  streamerr.Invalid,

	"modelnotfound": streamerr.NotFound,
	"notfound":      streamerr.NotFound,

	"insufficientquota": streamerr.Overloaded,
	"ratelimit":         streamerr.Overloaded,
	"ratelimitexceeded": streamerr.Overloaded,
	"requests":          streamerr.Overloaded, // OpenAI's types of rate_limit_exceeded
	"tokens":            streamerr.Overloaded,
	"toomanyrequests":   streamerr.Overloaded,

	"engineoverloaded":   streamerr.Unavailable,
	"overloaded":         streamerr.Unavailable,
	"serveroverloaded":   streamerr.Unavailable,
	"serviceunavailable": streamerr.Unavailable,
	"slowdown":           streamerr.Unavailable,
	"unavailable":        streamerr.Unavailable,

	"gatewaytimeout": streamerr.Deadline,
	"requesttimeout": streamerr.Deadline,
	"timeout":        streamerr.Deadline,
}

// contextTypes are the types of servers without codes for a prompt that does not fit, such as
// llama.cpp's exceed_context_size_error.
var contextTypes = map[string]bool{"contextlengthexceeded": true, "contextwindowexceeded": true, "exceedcontextsize": true}

// keyWords are codes and types that are about the worker's key.
var keyWords = map[string]bool{
	"authentication": true, "invalidapikey": true, "permission": true, "permissiondenied": true, "unauthorized": true,
}

// fullQueues are texts with which servers refuse a request because their queue is full: Ollama, vLLM (twice:
// requests, and tokens of prompts), and SGLang (the second text if requests have priorities). The status is
// 503, although the server works.
var fullQueues = []string{
	"maximum pending requests exceeded",
	"The engine is currently busy and cannot accept new requests",
	"The engine has reached its prefill token backlog limit",
	"The request queue is full",
	"The request is aborted by a higher priority request",
}

// hasFullQueue reports whether the complaint is that of a server whose queue is full.
func (c *Complaint) hasFullQueue() bool {
	return c.Status == http.StatusServiceUnavailable &&
		slices.ContainsFunc(fullQueues, func(text string) bool { return strings.Contains(c.Message, text) })
}

// ErrNoGeneration is the cause of an ending with which a server says that its model does not generate: it
// embeds, or rates documents.
var ErrNoGeneration = errors.New("the server's model does not generate")

// noGeneration are texts of servers whose model does not generate: llama.cpp, vLLM before it left the route
// out, and Ollama, for /api/generate and /api/chat.
var noGeneration = []string{
	"This server does not support completions", "The model does not support Completions API", "The model does not support Chat Completions API",
	"does not support generate", "does not support chat", "does not support completion",
}

// refusesGeneration reports whether the complaint is that of a server whose model does not generate.
func (c *Complaint) refusesGeneration() bool {
	switch c.Status {
	case http.StatusMethodNotAllowed, http.StatusNotImplemented:
		return true
	case http.StatusBadRequest:
		return slices.ContainsFunc(noGeneration, func(text string) bool { return strings.Contains(c.Message, text) })
	default:
		return false
	}
}

// plain returns a code or a type in the spelling of reasons.
func plain(said string) string {
	return strings.TrimSuffix(strings.ReplaceAll(strings.ToLower(said), "_", ""), "error")
}

// Reason classifies the complaint: by its status, else by its code, else by its type. A complaint
// without any of them means that the server has failed. A dead engine is a lost peer: another server
// can go on.
func (c *Complaint) Reason() streamerr.Reason {
	if c.Path != nil && !slices.Contains(ownReasons, c.EndReason) {
		return c.EndReason
	}
	if c.Died {
		return streamerr.PeerLost
	}
	if c.hasFullQueue() {
		return streamerr.Overloaded
	}
	if c.Status != 0 {
		return ReasonOf(c.Status)
	}
	for _, said := range []string{c.Code, c.Type} {
		if reason, ok := reasons[plain(said)]; ok {
			return reason
		}
	}
	return streamerr.EngineFailed
}

// AboutKey reports whether the complaint is about the worker's key. Such a complaint may quote a
// part of the key, and is not for clients. Status 401 is always about the key. Status 403 is about
// the key only if the server says so: providers also send it for content that their moderation
// refuses.
func (c *Complaint) AboutKey() bool {
	switch c.Status {
	case http.StatusUnauthorized:
		return true
	case http.StatusForbidden:
		return mentionsKey(c.Code) || mentionsKey(c.Type) || mentionsKey(c.Message)
	case 0:
		return keyWords[plain(c.Code)] || keyWords[plain(c.Type)]
	default:
		return false
	}
}

// keyPrefixes begin the words, in lower case, that servers use for a key and for what the key
// allows.
var keyPrefixes = []string{"apikey", "authenticat", "authoris", "authoriz", "credential", "permission", "unauthenticat", "unauthoris", "unauthoriz"}

// mentionsKey reports whether a text has a word for a key, authentication, permission or
// credentials.
func mentionsKey(text string) bool {
	notLetter := func(r rune) bool { return !unicode.IsLetter(r) }
	for word := range strings.FieldsFuncSeq(strings.ToLower(text), notLetter) {
		if word == "key" || word == "keys" || slices.ContainsFunc(keyPrefixes, func(prefix string) bool { return strings.HasPrefix(word, prefix) }) {
			return true
		}
	}
	return false
}

// Ending makes an ending of the complaint. The path of a Whence is kept, so that the origin is where the
// ending really began. how describes where the server made it, such as
// "answered with status 400".
func (c *Complaint) Ending(how string) *streamerr.Error {
	if c.AboutKey() {
		return Fail(streamerr.EngineFailed, ErrKeyRefused, "the server that generates %s: it refuses the worker's key; --upstream-key sets it", how)
	}
	message := Clip(c.Message, MaxMessage)
	if message == "" {
		message = "it gave no reason"
	}
	var cause error
	if c.refusesGeneration() {
		cause = ErrNoGeneration
	}
	e := Fail(c.Reason(), cause, "the server that generates %s: %s", how, message)
	e.Path = streamerr.NewPath(slices.Concat(c.Path, e.Path)...)
	if e.Code = streamerr.CleanCode(c.Code); e.Code == "" && contextTypes[plain(c.Type)] {
		e.Code = streamerr.CodeContextLength
	}
	c.explainOverflow(e)
	if e.Reason == streamerr.Overloaded || e.Reason == streamerr.Unavailable {
		e.RetryAfter = RetryIn(c.RetryAfter)
	}
	return e
}

// RetryIn returns the time after which callers may retry, for the wait that the server asks for; 0
// means that the server did not ask.
func RetryIn(said time.Duration) time.Duration { return min(max(said, RetryAfter), maxRetryAfter) }

// InAnswer describes, for Ending, an error that the server sent in place of a part of the answer.
const InAnswer = "reported an error in its answer"
