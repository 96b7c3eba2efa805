// Package call is the edge's view of a request for a stream, independent of the HTTP API: the
// request, and the encoding of the answer.
package call

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/whence-dev/whence/api-service/image"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/internal/prefetch"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// MaxPrompts is the maximum number of prompts in a body. It equals the chat-service's limit, so
// that larger requests are refused early.
const MaxPrompts = 64

// CheckPrompts refuses more than MaxPrompts prompts.
func CheckPrompts(param string, n int) error {
	if n > MaxPrompts {
		return streamerr.InvalidParam(param, "%s has %d prompts; at most %d are allowed", param, n, MaxPrompts)
	}
	return nil
}

// A Call is a request for a stream.
type Call struct {
	Request *chatv1.ChatRequest
	// ID is the stream's id from the body; "" leaves it to the headers.
	ID string
	// Ignored are the fields of the body that were left out, as distinct paths. A Strict request has
	// none.
	Ignored []string
	Strict  bool
	// IDPrefix stands before the stream's id in the id of the answer that the body names.
	IDPrefix string
	// Conversation is the client's own name of the conversation; "" means that it gave none.
	Conversation string
	Images       []image.Source // images of Request, which are empty until an image.Fetcher fills them in
	Stream       bool           // the answer is events, not one body
	// Opens reports that the headers of a stream are sent when the stream is admitted, although its
	// first event comes with the first piece of the answer.
	Opens   bool
	Timeout time.Duration // maximum duration of the answer; 0 means no limit
	// DefaultTokens reports that the max_tokens of Request is the API's default rather than a value
	// of the body.
	DefaultTokens bool
	// Param converts the name of a field in the IDL, which an inner hop uses in its errors, to its
	// name in the body.
	Param func(inner string) string
	// Events returns a new encoder of the answer as events, and Whole a new gatherer of the answer
	// as one body.
	Events func() Writer
	Whole  func() Gatherer
	// Touched adds the memory that the last encoder of Events touches with each item; it may be nil.
	Touched func(to *prefetch.List)
	// Failure and Done, if not nil, replace those of the API's Form, for an API whose last event
	// depends on the events that the encoder of Events has encoded.
	Failure func(err *streamerr.Error, id string, lines Lines)
	Done    func() string
	// Store says how to store the answer, so that later requests can read it; nil means that it is
	// not stored.
	Store *Storage
	// Loaded, if not nil, returns the body of the answer to a request that only asks whether its model
	// can answer. Such a request makes no stream.
	Loaded func() []byte
	// EndedAt returns the time at which the answer ended, once it has ended, and always the same
	// time. nil means that the API has no such time.
	EndedAt func() time.Time
	// Earlier is the id of the stored answer that the request continues; "" means none. References
	// are the ids of items of stored answers that the request names. If there are any, the edge
	// calls Continue with the conversation up to that answer, and with the items that it has found,
	// before it uses Request. The images that Continue returns replace Images.
	Earlier    string
	References []string
	Continue   func(conversation []json.RawMessage, found map[string]json.RawMessage) ([]image.Source, error)
	// Forget frees the memory that Param needs of the request's messages. ReleaseRequest calls it;
	// it may be nil.
	Forget func()
}

// A Storage says how an API wants an answer to be stored.
type Storage struct {
	// Background reports that the answer is independent of the request's connection.
	Background bool
	// Optional reports that the request does not ask for storage: the answer is stored when it has
	// ended, if there is room for it.
	Optional bool
	// Memo returns the data that the API needs, besides the stream's items, to return the answer
	// again (replay.Head.Memo). began is when the stream began. It is called once.
	Memo func(began time.Time) string
	// Items returns the beginning of the stream, and items that make the same answer as those so
	// far.
	Items func() (began time.Time, items []*chatv1.GenerateResponse)
	// Drop makes an Optional answer one that is not stored, and says so.
	Drop func()
}

// A Pooling is a request whose answer is one item: vectors or scores.
type Pooling[Req, Resp any] struct {
	Request Req
	Timeout time.Duration // maximum duration of the answer; 0 means no limit
	// Param is as that of a Call.
	Param func(inner string) string
	// Answer returns the body of the answer.
	Answer func(resp Resp) []byte
}

// Embeddings is a request for vectors.
type Embeddings = Pooling[*chatv1.EmbeddingsRequest, *chatv1.EmbeddingsResponse]

// Scores is a request for the relevance of documents.
type Scores = Pooling[*chatv1.ScoreRequest, *chatv1.ScoreResponse]

// maxInputs is the maximum number of texts of a request for vectors or scores. It equals the
// chat-service's limit.
const maxInputs = 2048

// CheckInputs refuses too many texts of a request for vectors or scores.
func CheckInputs(param string, n int) error {
	if n > maxInputs {
		return streamerr.InvalidParam(param, "%s has %d texts; at most %d are allowed", param, n, maxInputs)
	}
	return nil
}

// InputParam converts a field name of EmbeddingsRequest to its name in a body that has its texts in
// field: a list of them, or a single one.
func InputParam(inner, field string, list bool) string {
	rest, ok := strings.CutPrefix(inner, "inputs")
	switch {
	case !ok:
		return inner
	case list:
		return field + rest
	default:
		return field
	}
}

// A Writer appends the data lines of one item to lines. It is called with all items of a stream, in
// order.
type Writer func(out *chatv1.GenerateResponse, lines Lines)

// Lines takes the data lines of events. A line is encoded in place: the caller appends it to the
// buffer that Begin returns, and passes the longer buffer to End. BeginEvent is Begin for an event
// with a name.
type Lines interface {
	Begin() []byte
	BeginEvent(name string) []byte
	End(line []byte)
}

// Answered marks that the last line completes the answer; only its usage and its terminator follow.
// Writers call Answered once the finish reason is written. Lines may ignore it.
func Answered(lines Lines) {
	if marked, ok := lines.(interface{ Answered() }); ok {
		marked.Answered()
	}
}

// A Gatherer collects the items of a stream, in order. With the End it returns the body of the
// answer, and before nil.
type Gatherer func(out *chatv1.GenerateResponse) (body []byte)

// NamesChoices reports whether each delta must name its choice: the stream has several choices, or
// log-probabilities.
func (c *Call) NamesChoices() bool {
	s := c.Request.GetSampling()
	return Choices(c.Request) > 1 || s != nil && s.Logprobs != nil
}

// ReleaseRequest frees the parts of a request that only the hop below needs, once that hop has
// admitted it: texts, tools and variables of the template can be long, and a stream may last long.
func (c *Call) ReleaseRequest() {
	r := c.Request
	r.Messages, r.Prompts, r.Tools, r.TemplateVariables, r.Session, c.Images = nil, nil, nil, "", "", nil
	if c.Forget != nil {
		c.Forget()
	}
}

// Choices returns the number of answers that a request asks for.
func Choices(req *chatv1.ChatRequest) int {
	return max(1, int(req.GetN())) * max(1, len(req.GetPrompts()))
}
