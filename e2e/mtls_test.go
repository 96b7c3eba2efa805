package e2e

import (
	"crypto/tls"
	"net"
	"slices"
	"strconv"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/rpc/link"
	"github.com/whence-dev/whence/pkg/rpc/mtls/mtlstest"
)

// spiffe returns the name of a service in the tests' certificates.
func spiffe(service string) string { return "spiffe://example.org/ns/test/sa/" + service }

// mutual returns the flags for mutual TLS of a service.
func mutual(t *testing.T, a *mtlstest.Authority, service string, more ...string) ([]string, mtlstest.Pair) {
	t.Helper()
	p := mtlstest.NewPair(t)
	a.Issue(t, p, spiffe(service))
	return append([]string{"--mtls-cert", p.Cert, "--mtls-key", p.Key, "--mtls-ca", a.File}, more...), p
}

// TestMutualTLSBetweenServices: streams go over links and over gRPC with mutual TLS, and neither
// port of a service takes a Stop from a caller without a name.
func TestMutualTLSBetweenServices(t *testing.T) {
	t.Parallel()
	for _, transport := range []string{"--link=true", overGRPC} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			a := mtlstest.NewAuthority(t)
			api, apiPair := mutual(t, a, apiService, "--mtls-callees", spiffe(chatService))
			chat, chatPair := mutual(t, a, chatService, "--mtls-callers", spiffe(apiService), "--mtls-callees", spiffe(llmWorker))
			worker, workerPair := mutual(t, a, llmWorker, "--mtls-callers", spiffe(chatService))
			w := run(t, separate, flags{all: []string{transport}, api: api, chat: chat, worker: append(worker, "--pace", "100")})
			l := w.open(t, greedy(short)).begun(t)
			w.refuseStops(t, l.id, chatService, w.chat, apiPair, workerPair)
			w.refuseStops(t, l.id, llmWorker, w.worker, chatPair, workerPair)
			l.rest(t)
			if l.finish != "stop" || !l.done || l.err != nil {
				t.Errorf("the stream ended with %q, %v, after %q", l.finish, l.err, l.text.String())
			}
		})
	}
}

// refuseStops sends Stops for a stream to both ports of the service at addr: from plain callers, and
// from callers with the name of stranger. All must be refused. known has the name of a caller that
// the service accepts.
func (w *whence) refuseStops(t *testing.T, id, service, addr string, known, stranger mtlstest.Pair) {
	t.Helper()
	named := &tls.Config{Certificates: []tls.Certificate{stranger.Load(t)}, InsecureSkipVerify: true} //nolint:gosec // the caller is the attacker
	over, err := grpc.NewClient(addr, grpc.WithTransportCredentials(credentials.NewTLS(named)))
	if err != nil {
		t.Fatal(err)
	}
	defer over.Close()
	callers := map[string]grpc.ClientConnInterface{"plain": dialGRPC(t, addr), "named": over}
	if !slices.Contains(w.processes[service].Args, overGRPC) {
		links := linkAddress(t, addr, known)
		plain, strange := link.NewClient(links, link.Options{}), link.NewClient(links, link.Options{TLS: named})
		defer plain.Close()
		defer strange.Close()
		callers["plain link"], callers["named link"] = plain, strange
	}
	stop := &streamv1.StopStreamRequest{StreamId: id}
	for name, cc := range callers {
		if service == chatService {
			_, err = chatv1.NewChatClient(cc).Stop(t.Context(), &chatv1.StopRequest{Stream: stop})
		} else {
			_, err = workerv1.NewWorkerClient(cc).Stop(t.Context(), &workerv1.StopRequest{Stream: stop})
		}
		if status.Code(err) != codes.Unavailable {
			t.Errorf("a %s caller of %s: %v", name, service, err)
		}
	}
	w.processes[service].logged(t, "refused callers", func(r record) bool {
		return r.Msg == "a caller was refused before any call: mutual TLS failed"
	})
}

// linkAddress returns the address at which the service at addr serves links. The service is asked
// with the certificate of a caller that it accepts.
func linkAddress(t *testing.T, addr string, caller mtlstest.Pair) string {
	t.Helper()
	config := &tls.Config{Certificates: []tls.Certificate{caller.Load(t)}, InsecureSkipVerify: true} //nolint:gosec // the service is not under test here
	cc, err := grpc.NewClient(addr, grpc.WithTransportCredentials(credentials.NewTLS(config)))
	if err != nil {
		t.Fatal(err)
	}
	defer cc.Close()
	where, err := streamv1.NewLinksClient(cc).Where(t.Context(), &streamv1.WhereRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return net.JoinHostPort("127.0.0.1", strconv.FormatUint(uint64(where.GetPort()), 10))
}
