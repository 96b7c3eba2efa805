package otlp_test

import (
	"context"
	"net"
	"net/http"
	"sync"
	"testing"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/whence-dev/whence/internal/otlp"
	"github.com/whence-dev/whence/pkg/rpc/mtls/mtlstest"
)

// TestCollectorsWithTLSGetCredentials pushes spans to collectors with TLS. The authority and the
// credentials come from OpenTelemetry's variables.
func TestCollectorsWithTLSGetCredentials(t *testing.T) {
	authority, pair := mtlstest.NewAuthority(t), mtlstest.NewPair(t)
	authority.Issue(t, pair)
	t.Setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", authority.File)
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20secret")
	for scheme, serve := range map[string]func(*testing.T, net.Listener, mtlstest.Pair, chan<- string){
		"https://": serveHTTPS, "grpcs://": serveGRPCS,
	} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		authorization := make(chan string, 1)
		serve(t, ln, pair, authorization)
		exporter, err := otlp.Collector(scheme + ln.Addr().String()).Spans(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		spans := []sdk.ReadOnlySpan{tracetest.SpanStub{Name: "span"}.Snapshot()}
		if err := exporter.ExportSpans(t.Context(), spans); err != nil {
			t.Errorf("%s: %v", scheme, err)
		} else if got := <-authorization; got != "Bearer secret" {
			t.Errorf("%s: authorization is %q", scheme, got)
		}
		if err := exporter.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	}
}

// serveHTTPS serves a collector over HTTP, which passes on the authorization of each push.
func serveHTTPS(t *testing.T, ln net.Listener, pair mtlstest.Pair, authorization chan<- string) {
	t.Helper()
	s := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		authorization <- r.Header.Get("Authorization")
	})}
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.ServeTLS(ln, pair.Cert, pair.Key) })
	t.Cleanup(func() { _ = s.Close(); serving.Wait() })
}

// serveGRPCS serves a collector over gRPC, which passes on the authorization of each push.
func serveGRPCS(t *testing.T, ln net.Listener, pair mtlstest.Pair, authorization chan<- string) {
	t.Helper()
	creds, err := credentials.NewServerTLSFromFile(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(grpc.Creds(creds), grpc.UnknownServiceHandler(func(_ any, st grpc.ServerStream) error {
		md, _ := metadata.FromIncomingContext(st.Context())
		authorization <- md.Get("authorization")[0]
		if err := st.RecvMsg(&emptypb.Empty{}); err != nil {
			return err
		}
		return st.SendMsg(&emptypb.Empty{})
	}))
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.Serve(ln) })
	t.Cleanup(func() { s.Stop(); serving.Wait() })
}
