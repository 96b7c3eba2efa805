// Command mock is a chat-service for the tests of Kitex users: a generic Kitex server built from
// the Thrift file alone, without generated code, which answers from a script. Kitex clients call it
// like chat-service, over TTHeader Streaming, TTHeader and thrift over gRPC.
//
// The script is a JSON object. For each method it has the messages of the answer, as JSON of the
// Thrift file; unary methods answer with the first. A message {"pause_ms":100} is a pause, and
// {"fail":{"code":13007,"message":"…","reason":"draining"}} fails the call as chat-service does: a
// stream over TTHeader Streaming ends with an ApplicationException of that code, and with trailers
// that have a BizStatusErrorIface and the reason; other calls end with the BizStatusErrorIface. See
// script.json.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"

	"github.com/cloudwego/gopkg/protocol/thrift"
	"github.com/cloudwego/kitex/pkg/generic"
	"github.com/cloudwego/kitex/pkg/kerrors"
	"github.com/cloudwego/kitex/pkg/rpcinfo"
	"github.com/cloudwego/kitex/pkg/streaming"
	"github.com/cloudwego/kitex/pkg/transmeta"
	"github.com/cloudwego/kitex/server"
	"github.com/cloudwego/kitex/server/genericserver"
	"github.com/cloudwego/kitex/transport"

	"github.com/whence-dev/whence/internal/pollnet"
)

func main() {
	idl := flag.String("idl", "idl/thrift/chat.thrift", "the Thrift `file` of the service")
	path := flag.String("script", "examples/mock/script.json", "the `file` with the answers")
	listen := flag.String("listen", "127.0.0.1:8081", "`address` to serve on")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *idl, *path, *listen, func(addr net.Addr) { fmt.Println("serving on", addr) }); err != nil {
		fmt.Fprintln(os.Stderr, "mock:", err)
		stop()
		os.Exit(1) //nolint:gocritic // stop was called
	}
}

// A script has the messages of the answers, by method.
type script map[string][]json.RawMessage

// run serves until ctx is done. It calls ready with its address.
func run(ctx context.Context, idl, path, listen string, ready func(net.Addr)) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var answers script
	if err := json.Unmarshal(b, &answers); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	provider, err := generic.NewThriftFileProvider(idl)
	if err != nil {
		return err
	}
	g, err := generic.JSONThriftGeneric(provider)
	if err != nil {
		return err
	}
	defer g.Close() //nolint:errcheck // nothing is left to write
	ln, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	defer ln.Close() //nolint:errcheck // nothing was written that could be lost
	polled, err := pollnet.Listener(ln)
	if err != nil {
		return err
	}
	exit := make(chan error)
	defer context.AfterFunc(ctx, func() { close(exit) })()
	svr := genericserver.NewServerV2(&generic.ServiceV2{GenericCall: answers.call, BidiStreaming: answers.stream, ClientStreaming: answers.gather}, g,
		server.WithListener(polled), server.WithMetaHandler(transmeta.ServerTTHeaderHandler), server.WithCompatibleMiddlewareForUnary(), server.WithErrorHandler(asException),
		server.WithExitSignal(func() <-chan error { return exit }), server.WithExitWaitTime(100*time.Millisecond))
	ready(ln.Addr())
	if err := svr.Run(); err != nil && ctx.Err() == nil {
		return err
	}
	return nil // the connections of callers may still be open
}

// A step is an instruction in a script: a pause or a failure.
type step struct {
	PauseMS int64 `json:"pause_ms"`
	Fail    *struct {
		Code            int32
		Message, Reason string
	}
}

// noAnswer is the code of a method without an answer, and invalid its reason.
const (
	noAnswer = 13012
	invalid  = "invalid"
)

// failure returns the error of a call that fails.
func failure(code int32, message, reason string) kerrors.BizStatusErrorIface {
	return kerrors.NewBizStatusErrorWithExtra(code, message, map[string]string{"reason": reason, "path": hop})
}

// hop is the path of the mock's failures.
const hop = "mock"

// play sends the answer of a method.
func (s script) play(ctx context.Context, method string, send func(message string) error) error {
	messages, ok := s[method]
	if !ok {
		return failure(noAnswer, "the script has no answer for "+method, invalid)
	}
	for _, message := range messages {
		var do step
		if err := json.Unmarshal(message, &do); err != nil {
			return err
		}
		switch {
		case do.Fail != nil:
			return failure(do.Fail.Code, do.Fail.Message, do.Fail.Reason)
		case do.PauseMS > 0:
			select {
			case <-time.After(time.Duration(do.PauseMS) * time.Millisecond):
			case <-ctx.Done():
				return ctx.Err()
			}
		default:
			if err := send(string(message)); err != nil {
				return err
			}
		}
	}
	return nil
}

// call answers a unary method.
func (s script) call(ctx context.Context, _, method string, _ any) (answer any, err error) {
	err = s.play(ctx, method, func(message string) error {
		if answer == nil {
			answer = message
		}
		return nil
	})
	return answer, err
}

// stream answers the first message of a stream.
func (s script) stream(ctx context.Context, _, method string, st generic.BidiStreamingServer) error {
	if _, err := st.Recv(ctx); err != nil {
		return err
	}
	return ended(ctx, st, s.play(ctx, method, func(message string) error { return st.Send(ctx, message) }))
}

// ended returns the error of a stream's handler in the form of its protocol. Over gRPC a status
// carries the BizStatusErrorIface. Over TTHeader Streaming Kitex would send it without an
// exception.
func ended(ctx context.Context, st generic.BidiStreamingServer, err error) error {
	biz, ok := kerrors.FromBizStatusError(err)
	if !ok || rpcinfo.GetRPCInfo(ctx).Config().TransportProtocol()&transport.TTHeaderStreaming == 0 {
		return err
	}
	extra, err := json.Marshal(biz.BizExtra())
	if err != nil {
		return err
	}
	reason := biz.BizExtra()["reason"]
	if err := st.SetTrailer(streaming.Trailer{
		"biz-status": strconv.Itoa(int(biz.BizStatusCode())), "biz-message": biz.BizMessage(), "biz-extra": string(extra),
		"whence-end-reason": reason, "whence-end-path": hop,
	}); err != nil {
		return err
	}
	text := fmt.Sprintf("%s: %s [%s]", strings.ReplaceAll(reason, "_", " "), biz.BizMessage(), hop)
	return thrift.NewApplicationException(biz.BizStatusCode(), text)
}

// asException makes Kitex send exceptions unchanged. Kitex wraps other errors of handlers in its
// own text.
func asException(_ context.Context, err error) error {
	var exception *thrift.ApplicationException
	if errors.As(err, &exception) {
		return exception
	}
	return err
}

// gather answers a request of several messages, after its first message.
func (s script) gather(ctx context.Context, _, method string, st generic.ClientStreamingServer) error {
	if _, err := st.Recv(ctx); err != nil {
		return err
	}
	answer, err := s.call(ctx, "", method, nil)
	if err != nil {
		return err
	}
	return st.SendAndClose(ctx, answer)
}
