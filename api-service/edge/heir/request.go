package heir

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/whence-dev/whence/api-service/call"
	"github.com/whence-dev/whence/api-service/leave"
	"github.com/whence-dev/whence/api-service/replay"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/pkg/streamtrace"
)

// Form is the form of the requests and notes of this package, for replay.Head.
const Form = "chat/1"

// A Request has the data, besides the events, with which another instance can continue a stream.
type Request struct {
	Chat    *chatv1.ChatRequest
	Policy  leave.Policy
	Timeout time.Duration // of the whole stream; 0 means no limit
	Trace   streamtrace.Parent
}

// A preface is the first line of an encoded request, as JSON. The rest is the ChatRequest in the binary form
// of protobuf.
type preface struct {
	Policy  leave.Policy      `json:"policy"`
	Timeout time.Duration     `json:"timeout,omitempty"` // in nanoseconds
	Trace   map[string]string `json:"trace,omitempty"`   // traceparent and tracestate
}

// Encode returns the request in Form, or "" if it has more than maxBytes bytes.
func (r *Request) Encode(maxBytes int) (string, error) {
	p := preface{Policy: r.Policy, Timeout: r.Timeout}
	if r.Trace.Valid() {
		p.Trace = map[string]string{}
		r.Trace.Each(func(key, value string) { p.Trace[key] = value })
	}
	line, err := json.Marshal(p)
	if err != nil {
		return "", err
	}
	if len(line)+1+proto.Size(r.Chat) > maxBytes {
		return "", nil
	}
	encoded, err := proto.MarshalOptions{}.MarshalAppend(append(line, '\n'), r.Chat)
	return string(encoded), err
}

// Bequeath adds a Request to the head of a stream, so that another instance can continue the
// stream. A Request of more than maxBytes bytes is left out.
func Bequeath(h *replay.Head, in *call.Call, p leave.Policy, trace streamtrace.Parent, maxBytes int) {
	if maxBytes == 0 {
		return
	}
	in.Request.TellIds = true
	r := Request{Chat: in.Request, Policy: p, Timeout: in.Timeout, Trace: trace}
	encoded, err := r.Encode(maxBytes)
	if err != nil || encoded == "" {
		in.Request.TellIds = false
		return
	}
	h.Form, h.Request = Form, encoded
}

// Decode decodes a request in the given form.
func Decode(form, encoded string) (*Request, error) {
	if form != Form {
		return nil, fmt.Errorf("this version cannot read the form %q of its request", form)
	}
	line, rest, found := bytes.Cut([]byte(encoded), []byte{'\n'})
	var p preface
	if !found || json.Unmarshal(line, &p) != nil {
		return nil, errors.New("its request cannot be read")
	}
	r := &Request{Chat: &chatv1.ChatRequest{}, Policy: p.Policy, Timeout: p.Timeout}
	r.Trace = streamtrace.ReadParent(func(key string) string { return p.Trace[key] })
	if err := proto.Unmarshal(rest, r.Chat); err != nil {
		return nil, errors.New("its request cannot be read")
	}
	return r, nil
}

// Call returns the request as a call. Only the replay log reads the answer, and errors name the fields of the
// IDL.
func (r *Request) Call() *call.Call {
	return &call.Call{Request: r.Chat, Stream: true, Timeout: r.Timeout, Param: func(inner string) string { return inner }}
}
