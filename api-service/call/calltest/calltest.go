// Package calltest has helpers for the tests of all packages that parse a body into a call and
// encode its answer.
package calltest

import (
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/whence-dev/whence/api-service/call"
	"github.com/whence-dev/whence/api-service/strict"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
)

// A Parser parses the body of a request.
type Parser func(body []byte, in *strict.Reading) (*call.Call, error)

// Parse returns the call of a valid body.
func (parse Parser) Parse(t *testing.T, body string) *call.Call {
	t.Helper()
	c, err := parse([]byte(body), nil)
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return c
}

// WantRequest fails the test unless got equals the request want, in protobuf's JSON.
func WantRequest(t *testing.T, body string, got *chatv1.ChatRequest, want string) {
	t.Helper()
	request := &chatv1.ChatRequest{}
	if err := protojson.Unmarshal([]byte(want), request); err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(got, request) {
		t.Errorf("%s\nis %s\nwant %s", body, protojson.Format(got), protojson.Format(request))
	}
}

// Started returns the first item of an answer.
func Started(m *llmv1.Started) *chatv1.GenerateResponse {
	return &chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_Started{Started: m}}
}

// Delta returns a piece of an answer.
func Delta(d *chatv1.Delta) *chatv1.GenerateResponse {
	return &chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_Delta{Delta: d}}
}

// End returns the last item of an answer from a worker.
func End(e *llmv1.End) *chatv1.GenerateResponse {
	e.Path = []string{"llm-worker/0", "chat-service"}
	return &chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_End{End: e}}
}
