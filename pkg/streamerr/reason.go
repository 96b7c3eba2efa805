package streamerr

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
)

// A Reason is why a stream ended. A Reason is an error, so that errors.Is(err,
// streamerr.ClientGone) works on every hop. Its numbers are those of the enum
// whence.stream.v1.Reason. A number that this build does not know is preserved.
type Reason int32

// The reasons, with the possible origins of each.
const (
	Unspecified  = Reason(streamv1.Reason_REASON_UNSPECIFIED)
	Completed    = Reason(streamv1.Reason_REASON_COMPLETED)     // engine
	ClientGone   = Reason(streamv1.Reason_REASON_CLIENT_GONE)   // client
	UserStop     = Reason(streamv1.Reason_REASON_USER_STOP)     // client
	OperatorStop = Reason(streamv1.Reason_REASON_OPERATOR_STOP) // operator
	SlowReader   = Reason(streamv1.Reason_REASON_SLOW_READER)   // the hop whose buffer filled
	Deadline     = Reason(streamv1.Reason_REASON_DEADLINE)      // the hop whose timer fired
	Draining     = Reason(streamv1.Reason_REASON_DRAINING)      // the hop that shuts down
	// The peer that sent a bare RST, or the hop whose code canceled without a cause.
	PeerReset       = Reason(streamv1.Reason_REASON_PEER_RESET)
	PeerLost        = Reason(streamv1.Reason_REASON_PEER_LOST)       // the peer whose connection broke
	Overloaded      = Reason(streamv1.Reason_REASON_OVERLOADED)      // the hop that refused
	Unavailable     = Reason(streamv1.Reason_REASON_UNAVAILABLE)     // the hop that found no healthy peer
	Invalid         = Reason(streamv1.Reason_REASON_INVALID)         // the hop that rejected
	NotFound        = Reason(streamv1.Reason_REASON_NOT_FOUND)       // the hop that looked
	Unauthenticated = Reason(streamv1.Reason_REASON_UNAUTHENTICATED) // api-service
	Forbidden       = Reason(streamv1.Reason_REASON_FORBIDDEN)       // api-service
	EngineFailed    = Reason(streamv1.Reason_REASON_ENGINE_FAILED)   // engine or llm-worker
	Internal        = Reason(streamv1.Reason_REASON_INTERNAL)        // the hop that has the bug
)

// StatusClientClosed is the HTTP status in access logs for a client that left before its answer. No
// client receives it.
const StatusClientClosed = 499

// forms are the representations of a reason in other protocols.
type forms struct {
	code codes.Code
	http int
	kind string // error.type of OpenAI's error object
	word string // error.code of OpenAI's error object for an Error without a Code; "" for null
}

var known = map[Reason]forms{
	Completed:    {codes.OK, http.StatusOK, "", ""},
	ClientGone:   {codes.Canceled, StatusClientClosed, typeStopped, ""},
	UserStop:     {codes.Canceled, http.StatusConflict, typeStopped, ""},
	OperatorStop: {codes.Canceled, http.StatusServiceUnavailable, typeStopped, ""},
	SlowReader:   {codes.ResourceExhausted, http.StatusServiceUnavailable, typeStopped, ""},
	Deadline:     {codes.DeadlineExceeded, http.StatusGatewayTimeout, typeServer, ""},
	// Some agents give up at once on server_is_overloaded, OpenAI's code of 503. Another instance can take
	// the request of Draining now, and a service that is Unavailable need not be busy: both have no code.
	Draining:        {codes.Unavailable, http.StatusServiceUnavailable, typeUnavailable, ""},
	PeerReset:       {codes.Canceled, http.StatusBadGateway, typeServer, codeServer},
	PeerLost:        {codes.Unavailable, http.StatusBadGateway, typeServer, codeServer},
	Overloaded:      {codes.ResourceExhausted, http.StatusTooManyRequests, typeRateLimit, CodeRateLimit},
	Unavailable:     {codes.Unavailable, http.StatusServiceUnavailable, typeUnavailable, ""},
	Invalid:         {codes.InvalidArgument, http.StatusBadRequest, typeInvalid, ""},
	NotFound:        {codes.NotFound, http.StatusNotFound, typeInvalid, ""},
	Unauthenticated: {codes.Unauthenticated, http.StatusUnauthorized, typeInvalid, ""},
	Forbidden:       {codes.PermissionDenied, http.StatusForbidden, typeInvalid, ""},
	EngineFailed:    {codes.Internal, http.StatusInternalServerError, typeServer, codeServer},
	Internal:        {codes.Internal, http.StatusInternalServerError, typeServer, codeServer},
}

func (r Reason) forms() forms {
	if f, ok := known[r]; ok {
		return f
	}
	return known[Internal]
}

// String returns the name of r in logs, labels and JSON, such as "client_gone", or "reason_57" for
// a reason that this build does not know.
func (r Reason) String() string {
	if word, ok := words[r]; ok {
		return word
	}
	return strings.ToLower(r.wire())
}

// words maps the known reasons to their names, and reasons maps these names to the reasons.
var words, reasons = func() (map[Reason]string, map[string]Reason) {
	words, reasons := map[Reason]string{}, map[string]Reason{}
	for n := range streamv1.Reason_name {
		word := strings.ToLower(Reason(n).wire())
		words[Reason(n)], reasons[word] = word, Reason(n)
	}
	return words, reasons
}()

// Error makes a Reason usable as the target of errors.Is.
func (r Reason) Error() string { return strings.ReplaceAll(r.String(), "_", " ") }

// Code returns the gRPC code of r.
func (r Reason) Code() codes.Code { return r.forms().code }

// HTTPStatus returns the HTTP status of r for a stream that has sent no byte yet.
func (r Reason) HTTPStatus() int { return r.forms().http }

// Type returns the error.type of OpenAI's error object for r.
func (r Reason) Type() string { return r.forms().kind }

// Proto returns r as the enum of the IDL.
func (r Reason) Proto() streamv1.Reason { return streamv1.Reason(r) }

const enumPrefix = "REASON_"

// wire returns the name of r in gRPC details and trailers, such as "CLIENT_GONE".
func (r Reason) wire() string {
	if name, ok := streamv1.Reason_name[int32(r)]; ok {
		return strings.TrimPrefix(name, enumPrefix)
	}
	return fmt.Sprintf("%s%d", enumPrefix, int32(r))
}

// ParseReason parses the output of String or the wire form, in either case. It returns Unspecified
// for an unknown name.
func ParseReason(word string) Reason {
	if r, ok := reasons[word]; ok {
		return r
	}
	word = strings.ToUpper(word)
	if n, ok := streamv1.Reason_value[enumPrefix+word]; ok {
		return Reason(n)
	}
	if digits, ok := strings.CutPrefix(word, enumPrefix); ok {
		if n, err := strconv.ParseInt(digits, 10, 32); err == nil && n > 0 {
			return Reason(n)
		}
	}
	return Unspecified
}
