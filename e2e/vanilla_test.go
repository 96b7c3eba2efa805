package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cloudwego/kitex/client"
	kstatus "github.com/cloudwego/kitex/pkg/remote/trans/nphttp2/status"
	"github.com/cloudwego/kitex/pkg/serviceinfo"
	"github.com/cloudwego/kitex/pkg/streaming"
	"github.com/cloudwego/kitex/transport"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/lab"
)

// An endingView is the view of an ending by a caller without our library: the code, and the reason
// and path both in the status's details and in the trailers.
type endingView struct {
	code                     string
	reason, path             string // of google.rpc.ErrorInfo
	trailerReason, trailPath string
}

// detail reads the details of a status.
func (l *endingView) detail(details []any) {
	for _, d := range details {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			l.reason, l.path = info.GetReason(), info.GetMetadata()["path"]
		}
	}
}

func (l *endingView) trailer(md map[string][]string) {
	l.trailerReason, l.trailPath = strings.Join(md["whence-end-reason"], ","), strings.Join(md["whence-end-path"], ",")
}

// vanilla are callers that know only gRPC and the protos. Each runs a stream until it ends, and
// calls begun at the first text.
var vanilla = []struct {
	name string
	call func(t *testing.T, addr string, req *chatv1.ChatRequest, begun func()) endingView
}{
	{"grpc-go", vanillaGRPC},
	{"kitex", vanillaKitex},
	{"grpcurl", vanillaGRPCurl},
}

func vanillaGRPC(t *testing.T, addr string, req *chatv1.ChatRequest, begun func()) (l endingView) {
	t.Helper()
	st, err := chatv1.NewChatClient(dialGRPC(t, addr)).Generate(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Send(&chatv1.GenerateRequest{Message: &chatv1.GenerateRequest_Chat{Chat: req}}); err != nil {
		t.Fatal(err)
	}
	_ = st.CloseSend()
	for {
		out, err := st.Recv()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				l.detail(status.Convert(err).Details())
			}
			l.code = status.Code(err).String()
			l.trailer(st.Trailer())
			return l
		}
		if out.GetDelta() != nil {
			begun()
		}
	}
}

func vanillaKitex(t *testing.T, addr string, req *chatv1.ChatRequest, begun func()) (l endingView) {
	t.Helper()
	none := func() any { return nil }
	kc, err := client.NewClient(&serviceinfo.ServiceInfo{
		ServiceName: "Chat", HandlerType: (*any)(nil), PayloadCodec: serviceinfo.Protobuf,
		Methods: map[string]serviceinfo.MethodInfo{
			"Generate": serviceinfo.NewMethodInfo(nil, none, none, false, serviceinfo.WithStreamingMode(serviceinfo.StreamingBidirectional)),
		},
		Extra: map[string]any{serviceinfo.PackageName: "whence.chat.v1"},
	}, client.WithDestService("chat"), client.WithHostPorts(addr), client.WithTransportProtocol(transport.GRPC))
	if err != nil {
		t.Fatal(err)
	}
	if closer, ok := kc.(io.Closer); ok {
		defer closer.Close()
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	st, err := kc.(client.Streaming).StreamX(ctx, "Generate")
	if err != nil {
		t.Fatal(err)
	}
	if err := st.SendMsg(ctx, &chatv1.GenerateRequest{Message: &chatv1.GenerateRequest_Chat{Chat: req}}); err != nil {
		t.Fatal(err)
	}
	_ = st.CloseSend(ctx)
	for {
		out := &chatv1.GenerateResponse{}
		if err := st.RecvMsg(ctx, out); err != nil {
			l.code = "OK"
			if s, ok := kstatus.FromError(err); ok && !errors.Is(err, io.EOF) {
				l.code = s.Code().String()
				l.detail(s.Details())
			}
			l.trailer(st.(streaming.GRPCStreamGetter).GetGRPCStream().Trailer())
			return l
		}
		if out.GetDelta() != nil {
			begun()
		}
	}
}

// vanillaGRPCurl parses grpcurl's human-readable output.
func vanillaGRPCurl(t *testing.T, addr string, req *chatv1.ChatRequest, begun func()) (l endingView) {
	t.Helper()
	body := fmt.Sprintf(`{"chat":{"stream_id":%q,"model":%q,"messages":[{"role":"user","content":%q}],"sampling":{"temperature":0}}}`,
		req.GetStreamId(), req.GetModel(), req.GetMessages()[0].GetContent())
	p, err := lab.Start(lab.Command{Name: "grpcurl", File: grpcurlPath(t), Args: []string{"-plaintext", "-v", "-d", body, addr, "whence.chat.v1.Chat/Generate"}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.End()
	if _, err := p.Await(p.Out, "text", func(line string) bool { return strings.Contains(line, `"delta"`) }); err == nil { // without text it prints an error
		begun()
	}
	if _, err := p.Status(); err != nil { // it has the result of the call
		t.Fatal(err)
	}
	for _, line := range slices.Concat(p.Out.All(), p.Log.All()) {
		line = strings.TrimSuffix(strings.TrimSpace(line), ",")
		for prefix, to := range map[string]*string{
			"Code: ": &l.code, `"reason": `: &l.reason, `"path": `: &l.path,
			"whence-end-reason: ": &l.trailerReason, "whence-end-path: ": &l.trailPath,
		} {
			if value, ok := strings.CutPrefix(line, prefix); ok && json.Unmarshal([]byte(value), to) != nil {
				*to = value // not a string of JSON
			}
		}
	}
	return l
}

func TestCallersWithoutOurLibraryLearnCodeReasonAndPath(t *testing.T) {
	eachTopology(t, flags{worker: []string{"--pace", "40"}}, func(t *testing.T, w *whence) {
		for _, v := range vanilla {
			stopped := chatRequest(long)
			stopped.StreamId = "stopped-" + v.name
			got := v.call(t, w.chat, stopped, sync.OnceFunc(func() {
				if out, ok := grpcurl(t, w.worker, "-d", fmt.Sprintf(`{"stream":{"stream_id":%q}}`, stopped.GetStreamId()), "whence.worker.v1.Worker/Stop"); !ok {
					t.Error(out)
				}
			}))
			path := "operator > llm-worker/0 > chat-service"
			if want := (endingView{"Canceled", "OPERATOR_STOP", path, "operator_stop", path}); got != want {
				t.Errorf("%s: a stopped stream: %+v, want %+v", v.name, got, want)
			}
			missing := chatRequest(short)
			missing.Model = "nobody"
			got = v.call(t, w.chat, missing, func() {})
			if want := (endingView{"NotFound", "NOT_FOUND", "chat-service", "not_found", "chat-service"}); got != want {
				t.Errorf("%s: a model that does not exist: %+v, want %+v", v.name, got, want)
			}
		}
	})
}

// TestDrainReachesCallersWithoutOurLibrary: a Kitex server that shuts down resets streams with its
// own code 1000, which other clients do not understand.
func TestDrainReachesCallersWithoutOurLibrary(t *testing.T) {
	t.Parallel()
	for _, v := range vanilla {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			w := run(t, separate, flags{all: []string{"--drain", "200ms"}, worker: []string{"--pace", "40"}})
			got := v.call(t, w.chat, chatRequest(long), sync.OnceFunc(func() { w.processes[chatService].terminate(t) }))
			if want := (endingView{"Unavailable", "DRAINING", "chat-service", "draining", "chat-service"}); got != want {
				t.Errorf("%+v, want %+v", got, want)
			}
			w.processes[chatService].exit(t)
		})
	}
}
