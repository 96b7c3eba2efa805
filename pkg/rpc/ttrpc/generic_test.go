package ttrpc_test

import (
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/cloudwego/kitex/client"
	"github.com/cloudwego/kitex/client/genericclient"
	"github.com/cloudwego/kitex/pkg/generic"
	"github.com/cloudwego/kitex/pkg/transmeta"
	"github.com/cloudwego/kitex/transport"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/pkg/rpc/methods"
	"github.com/whence-dev/whence/pkg/rpc/thriftwire"
)

// A genericKind is a kind of generic client, which has the Thrift files but no generated code. text
// prints an answer.
type genericKind struct {
	make    func(t *testing.T) generic.Generic
	request func(model string) any
	text    func(t *testing.T, answer any) string
}

var genericKinds = map[string]genericKind{
	"JSON": {
		make: func(t *testing.T) generic.Generic {
			return made(t, func(p generic.DescriptorProvider) (generic.Generic, error) { return generic.JSONThriftGeneric(p) })
		},
		request: func(model string) any {
			return `{"chat":{"model":"` + model + `"}}`
		},
		text: func(_ *testing.T, answer any) string { return answer.(string) },
	},
	"map": {
		make:    func(t *testing.T) generic.Generic { return made(t, generic.MapThriftGeneric) },
		request: func(model string) any { return map[string]any{"chat": map[string]any{"model": model}} },
		text: func(t *testing.T, answer any) string {
			b, err := json.Marshal(answer)
			if err != nil {
				t.Fatal(err)
			}
			return string(b)
		},
	},
	"binary": {
		make: func(*testing.T) generic.Generic { return generic.BinaryThriftGenericV2("Chat") },
		request: func(model string) any {
			b, _ := thriftwire.Append(nil, methods.Chat.Open(&chatv1.ChatRequest{Model: model}))
			return b
		},
		text: func(t *testing.T, answer any) string {
			var out chatv1.GenerateResponse
			if _, err := thriftwire.Decode(answer.([]byte), &out); err != nil {
				t.Fatal(err)
			}
			return `"text":"` + out.GetDelta().GetText() + `"`
		},
	},
}

func made(t *testing.T, kind func(generic.DescriptorProvider) (generic.Generic, error)) generic.Generic {
	t.Helper()
	p, err := generic.NewThriftFileProvider("../../../idl/thrift/chat.thrift")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	g, err := kind(p)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// TestGenericClientsNeedOnlyTheThriftFiles runs a stream and, with JSON, a unary call.
func TestGenericClientsNeedOnlyTheThriftFiles(t *testing.T) {
	addr := serve(t, newService("chat"))
	for name, kind := range genericKinds {
		for over, protocol := range map[string]transport.Protocol{"TTHeader Streaming": tt, "gRPC": transport.GRPC} {
			t.Run(name+" over "+over, func(t *testing.T) {
				c, err := genericclient.NewClient("chat", kind.make(t), client.WithHostPorts(addr), client.WithTransportProtocol(protocol), client.WithMetaHandler(transmeta.ClientTTHeaderHandler))
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				if got, err := genericText(t, c, kind, "completes"); !errors.Is(err, io.EOF) || !strings.Contains(got, `"text":"go"`) {
					t.Errorf("%q, %v", got, err)
				}
				if _, err := genericText(t, c, kind, "fails"); err == nil || !strings.Contains(err.Error(), "out of luck") {
					t.Errorf("%v", err)
				}
				if name != "JSON" {
					return
				}
				if got, err := c.GenericCall(t.Context(), "Models", "{}"); err != nil || !strings.Contains(got.(string), `"id":"m"`) {
					t.Errorf("%v, %v", got, err)
				}
			})
		}
	}
}

// genericText returns all messages of a stream, and the error at its end.
func genericText(t *testing.T, c genericclient.Client, kind genericKind, model string) (string, error) {
	t.Helper()
	st, err := c.BidirectionalStreaming(t.Context(), "Generate")
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Send(t.Context(), kind.request(model)); err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for {
		out, err := st.Recv(t.Context())
		if err != nil {
			return all.String(), err
		}
		all.WriteString(kind.text(t, out) + "\n")
	}
}
