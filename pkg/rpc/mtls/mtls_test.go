package mtls_test

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/logtest"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/pkg/rpc/connloss"
	"github.com/whence-dev/whence/pkg/rpc/kitexrpc"
	"github.com/whence-dev/whence/pkg/rpc/link"
	"github.com/whence-dev/whence/pkg/rpc/mtls"
	"github.com/whence-dev/whence/pkg/rpc/mtls/mtlstest"
)

const (
	chatName   = "spiffe://example.org/ns/prod/sa/chat-service"
	workerName = "spiffe://example.org/ns/prod/sa/llm-worker"
)

// A worker counts the Stops that reach it.
type worker struct {
	workerv1.UnimplementedWorkerServer
	stops atomic.Int32
}

func (w *worker) Stop(context.Context, *workerv1.StopRequest) (*workerv1.StopResponse, error) {
	w.stops.Add(1)
	return &workerv1.StopResponse{}, nil
}

// A kind is a kind of server, and of its clients.
type kind struct {
	name string
	// serve starts a server of w.
	serve func(t *testing.T, ln net.Listener, i *mtls.Identity, w *worker)
	// dial returns a client of target; config is nil for plain TCP.
	dial func(t *testing.T, target string, config *tls.Config) grpc.ClientConnInterface
}

func dialGRPC(t *testing.T, target string, config *tls.Config) grpc.ClientConnInterface {
	t.Helper()
	creds := (*mtls.Identity)(nil).ClientCredentials(target)
	if config != nil {
		creds = credentials.NewTLS(config)
	}
	cc, err := grpc.NewClient(target, grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cc.Close() })
	return cc
}

// kinds are the servers of our services: llm-worker's, chat-service's, and that of links.
var kinds = []kind{
	{name: "grpc-go", dial: dialGRPC, serve: func(t *testing.T, ln net.Listener, i *mtls.Identity, w *worker) {
		t.Helper()
		s := grpc.NewServer(grpc.Creds(connloss.Sense(i.ServerCredentials())))
		workerv1.RegisterWorkerServer(s, w)
		own(t, func() error { return s.Serve(ln) }, s.Stop)
	}},
	{name: "kitex", dial: dialGRPC, serve: serveKitex},
	{name: "kitex, called by kitex", serve: serveKitex, dial: func(t *testing.T, target string, config *tls.Config) grpc.ClientConnInterface {
		t.Helper()
		dial := func() (*kitexrpc.ClientConn, error) { return kitexrpc.Dial(target, &workerv1.Worker_ServiceDesc) }
		if config != nil {
			dial = func() (*kitexrpc.ClientConn, error) {
				return kitexrpc.DialTLS(target, config, &workerv1.Worker_ServiceDesc)
			}
		}
		cc, err := dial()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cc.Close() })
		return cc
	}},
	{name: "link", serve: func(t *testing.T, ln net.Listener, i *mtls.Identity, w *worker) {
		t.Helper()
		s := link.NewServer(link.Options{TLS: i.ServerTLS(), Refused: i.Refused})
		workerv1.RegisterWorkerServer(s, w)
		own(t, func() error { return s.Serve(ln) }, s.Stop)
	}, dial: func(t *testing.T, target string, config *tls.Config) grpc.ClientConnInterface {
		t.Helper()
		cc := link.NewClient(target, link.Options{TLS: config})
		t.Cleanup(func() { _ = cc.Close() })
		return cc
	}},
}

func serveKitex(t *testing.T, ln net.Listener, i *mtls.Identity, w *worker) {
	t.Helper()
	s := kitexrpc.NewServer()
	s.Creds = i.ServerCredentials()
	workerv1.RegisterWorkerServer(s, w)
	own(t, func() error { return s.Serve(ln) }, s.Stop)
	<-s.Ready()
}

// own runs serve until the end of the test.
func own(t *testing.T, serve func() error, stop func()) {
	t.Helper()
	var serving sync.WaitGroup
	serving.Go(func() { _ = serve() })
	t.Cleanup(func() { stop(); serving.Wait() })
}

// identity returns an identity with a new certificate for names.
func identity(t *testing.T, a *mtlstest.Authority, log *logtest.Log, c mtls.Config, names ...string) (*mtls.Identity, mtlstest.Pair) {
	t.Helper()
	p := mtlstest.NewPair(t)
	a.Issue(t, p, names...)
	c.Cert, c.Key, c.CA = p.Cert, p.Key, a.File
	i, err := c.Open(slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	return i, p
}

// serving starts a server of kind k that accepts chatName and chat.internal.
func serving(t *testing.T, k kind, a *mtlstest.Authority) (target string, w *worker, log *logtest.Log, p mtlstest.Pair) {
	t.Helper()
	log, w = new(logtest.Log), &worker{}
	i, p := identity(t, a, log, mtls.Config{Callers: mtls.Names{chatName, "chat.internal"}}, workerName)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	k.serve(t, ln, i, w)
	return ln.Addr().String(), w, log, p
}

func stop(t *testing.T, cc grpc.ClientConnInterface) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), polltest.Patience)
	defer cancel()
	_, err := workerv1.NewWorkerClient(cc).Stop(ctx, &workerv1.StopRequest{})
	return err
}

func TestPeersWithAcceptedNamesMayCall(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			a := mtlstest.NewAuthority(t)
			target, w, log, _ := serving(t, k, a)
			for n, caller := range []string{chatName, "Chat.Internal"} {
				for _, callees := range []mtls.Names{{workerName}, nil} { // nil: the certificate is valid for 127.0.0.1
					i, _ := identity(t, a, log, mtls.Config{Callees: callees}, caller)
					before := w.stops.Load()
					if err := stop(t, k.dial(t, target, i.ClientTLS(target))); err != nil || w.stops.Load() != before+1 {
						t.Errorf("caller %d, callees %v: %v\n%s", n, callees, err, log)
					}
				}
			}
		})
	}
}

// TestOthersCannotStopStreams: a caller that may not call is refused before its Stop reaches a
// method, and the log names the caller and the reason.
func TestOthersCannotStopStreams(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			a := mtlstest.NewAuthority(t)
			callers := []struct {
				name, logged string
				config       func(target string) *tls.Config
			}{
				{"a plain caller", "TLS", func(string) *tls.Config { return nil }},
				{"a caller without a certificate", "certificate", func(target string) *tls.Config {
					i, _ := identity(t, a, new(logtest.Log), mtls.Config{}, chatName)
					c := i.ClientTLS(target)
					c.GetClientCertificate = nil
					return c
				}},
				{"a caller with another name", "ns/prod/sa/intruder", func(target string) *tls.Config {
					i, _ := identity(t, a, new(logtest.Log), mtls.Config{}, "spiffe://example.org/ns/prod/sa/intruder")
					return i.ClientTLS(target)
				}},
				{"a caller with two URIs", "must have at most one", func(target string) *tls.Config {
					i, _ := identity(t, a, new(logtest.Log), mtls.Config{}, chatName, "spiffe://example.org/ns/prod/sa/intruder")
					return i.ClientTLS(target)
				}},
				{"a caller of another authority", "unknown authority", func(target string) *tls.Config {
					own, _ := identity(t, a, new(logtest.Log), mtls.Config{}, chatName)
					foreign, _ := identity(t, mtlstest.NewAuthority(t), new(logtest.Log), mtls.Config{}, chatName)
					c := own.ClientTLS(target)
					c.GetClientCertificate = foreign.ClientTLS(target).GetClientCertificate
					return c
				}},
			}
			for _, caller := range callers {
				target, w, log, _ := serving(t, k, a)
				if err := stop(t, k.dial(t, target, caller.config(target))); err == nil || status.Code(err) == codes.DeadlineExceeded {
					t.Errorf("%s: %v", caller.name, err)
				}
				log.Await(t, "a caller was refused")
				if text := log.String(); !strings.Contains(text, caller.logged) || !strings.Contains(text, "peer=127.0.0.1:") {
					t.Errorf("%s: the log is\n%s", caller.name, text)
				}
				if n := w.stops.Load(); n != 0 {
					t.Errorf("%s: %d Stops reached the method", caller.name, n)
				}
			}
		})
	}
}

func TestCallersRefuseOtherCallees(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			a := mtlstest.NewAuthority(t)
			target, w, _, _ := serving(t, k, a)
			for name, c := range map[string]struct {
				authority *mtlstest.Authority
				config    mtls.Config
				target    string
			}{
				"another name":      {a, mtls.Config{Callees: mtls.Names{"worker.internal"}}, target},
				"another host":      {a, mtls.Config{}, "worker.internal:1"},
				"another authority": {mtlstest.NewAuthority(t), mtls.Config{Callees: mtls.Names{workerName}}, target},
			} {
				log := new(logtest.Log)
				i, _ := identity(t, c.authority, log, c.config, chatName)
				if err := stop(t, k.dial(t, target, i.ClientTLS(c.target))); err == nil {
					t.Errorf("%s: the call succeeded", name)
				}
				log.Await(t, "a callee was refused")
			}
			if n := w.stops.Load(); n != 0 {
				t.Errorf("%d Stops reached the method", n)
			}
		})
	}
}

func TestRotatedFilesServeNewConnections(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel() // the files are read every second
			a := mtlstest.NewAuthority(t)
			target, _, log, p := serving(t, k, a)
			i, _ := identity(t, a, log, mtls.Config{Callees: mtls.Names{workerName}}, chatName)
			old := k.dial(t, target, i.ClientTLS(target))
			if err := stop(t, old); err != nil {
				t.Fatal(err)
			}
			serial := a.Issue(t, p, workerName)
			polltest.Eventually(t, "the server presents the new certificate", func() bool { return presented(t, target, i) == serial })
			if err := stop(t, old); err != nil {
				t.Errorf("the connection from before the rotation: %v", err)
			}
			// A broken file changes nothing.
			if err := os.WriteFile(p.Cert, []byte("no certificate"), 0o600); err != nil {
				t.Fatal(err)
			}
			polltest.Eventually(t, "the broken file is in the log", func() bool {
				return presented(t, target, i) == serial && strings.Contains(log.String(), "cannot be used")
			})
			// New authorities: the old caller is refused, a caller of the new authority is served.
			b := mtlstest.NewAuthority(t)
			b.Issue(t, p, workerName)
			pem, err := os.ReadFile(b.File)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(a.File, pem, 0o600); err != nil {
				t.Fatal(err)
			}
			fresh, _ := identity(t, b, log, mtls.Config{Callees: mtls.Names{workerName}}, chatName)
			polltest.Eventually(t, "a caller of the new authority is served", func() bool {
				return stop(t, k.dial(t, target, fresh.ClientTLS(target))) == nil
			})
			if err := stop(t, k.dial(t, target, i.ClientTLS(target))); err == nil {
				t.Error("a caller of the old authority was served")
			}
		})
	}
}

// presented returns the serial number of the certificate that the server presents, or 0.
func presented(t *testing.T, target string, i *mtls.Identity) int64 {
	t.Helper()
	config := i.ClientTLS(target)
	config.NextProtos = []string{"h2"}
	conn, err := tls.Dial("tcp", target, config)
	if err != nil {
		return 0
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
}

func TestConfigNeedsAllParts(t *testing.T) {
	for want, c := range map[string]mtls.Config{
		"--mtls-cert, --mtls-key and --mtls-ca must be given together": {Cert: "c", Key: "k"},
		"the flags of mutual TLS need --mtls-cert":                     {Callers: mtls.Names{"a"}},
		"--mtls-cert needs --mtls-callers":                             {Cert: "c", Key: "k", CA: "a"},
	} {
		if err := c.ValidateCallee(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v; want %q", c, err, want)
		}
	}
	off := mtls.Config{}
	if i, err := off.Open(slog.Default()); i != nil || err != nil || off.ValidateCallee() != nil {
		t.Errorf("the zero value: %v, %v", i, err)
	}
	missing := mtls.Config{Cert: "absent.pem", Key: "absent.pem", CA: "absent.pem"}
	if _, err := missing.Open(slog.Default()); err == nil {
		t.Error("absent files were accepted")
	}
	var names mtls.Names
	if err := names.Set("a, b"); err != nil || names.String() != "a,b" || names.Set("a,,b") == nil {
		t.Errorf("names: %v, %v", names, err)
	}
}
