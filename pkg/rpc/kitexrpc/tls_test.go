package kitexrpc_test

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/rpc/kitexrpc"
	"github.com/whence-dev/whence/pkg/rpc/mtls/mtlstest"
)

// mutual returns TLS configurations of a server and a client that verify each other's certificate.
func mutual(t *testing.T) (server, client *tls.Config) {
	t.Helper()
	a, p := mtlstest.NewAuthority(t), mtlstest.NewPair(t)
	a.Issue(t, p)
	own := []tls.Certificate{p.Load(t)}
	server = &tls.Config{MinVersion: tls.VersionTLS13, Certificates: own, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: a.Pool()}
	client = &tls.Config{MinVersion: tls.VersionTLS13, Certificates: own, RootCAs: a.Pool(), ServerName: "127.0.0.1"}
	return server, client
}

func serveTLS(t *testing.T, config *tls.Config) (addr string) {
	t.Helper()
	s := kitexrpc.NewServer()
	s.Creds = credentials.NewTLS(config)
	workerv1.RegisterWorkerServer(s, echo{})
	healthpb.RegisterHealthServer(s, health.NewServer())
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := s.Serve(ln); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { s.Stop(); serving.Wait() })
	return ln.Addr().String()
}

func TestServerWithTLSServesClientsWithCertificates(t *testing.T) {
	server, client := mutual(t)
	addr := serveTLS(t, server)
	g, err := grpc.NewClient(addr, grpc.WithTransportCredentials(credentials.NewTLS(client)))
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	k, err := kitexrpc.DialTLS(addr, client, &workerv1.Worker_ServiceDesc, &healthpb.Health_ServiceDesc)
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	for name, cc := range map[string]grpc.ClientConnInterface{"grpc": g, "kitex": k} {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "x-in", "value")
		if info, err := workerv1.NewWorkerClient(cc).Info(ctx, &workerv1.InfoRequest{}); err != nil || info.GetModel() != "value" {
			t.Errorf("%s: %v, %v", name, info, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		st, err := workerv1.NewWorkerClient(cc).Generate(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for i := range uint32(100) {
			if err := st.Send(&workerv1.GenerateRequest{Message: &workerv1.GenerateRequest_Tokens{Tokens: &workerv1.TokenRequest{Prompt: []uint32{i}}}}); err != nil {
				t.Fatal(err)
			}
			if out, err := st.Recv(); err != nil || out.GetTokens().GetIds()[0] != i {
				t.Fatalf("%s: %v, %v", name, out, err)
			}
		}
		cancel()
		if _, err := st.Recv(); status.Code(err) != codes.Canceled {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestServerWithTLSRefusesOthers(t *testing.T) {
	server, client := mutual(t)
	_, stranger := mutual(t)
	addr := serveTLS(t, server)
	noCertificate := client.Clone()
	noCertificate.Certificates = nil
	strangers := client.Clone()
	strangers.Certificates = stranger.Certificates
	for name, creds := range map[string]credentials.TransportCredentials{
		"without TLS":                   insecure.NewCredentials(),
		"without a certificate":         credentials.NewTLS(noCertificate),
		"with another's certificate":    credentials.NewTLS(strangers),
		"that does not know the server": credentials.NewTLS(stranger),
	} {
		cc, err := grpc.NewClient(addr, grpc.WithTransportCredentials(creds))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := workerv1.NewWorkerClient(cc).Info(t.Context(), &workerv1.InfoRequest{}); status.Code(err) != codes.Unavailable {
			t.Errorf("a client %s: %v", name, err)
		}
		_ = cc.Close()
	}
	k, err := kitexrpc.DialTLS(addr, noCertificate, &workerv1.Worker_ServiceDesc)
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	// Kitex returns INTERNAL, "the stream is done", if the server has refused the handshake before
	// the send.
	if _, err := workerv1.NewWorkerClient(k).Info(t.Context(), &workerv1.InfoRequest{}); status.Code(err) != codes.Unavailable && status.Code(err) != codes.Internal {
		t.Errorf("a Kitex client without a certificate: %v", err)
	}
}
