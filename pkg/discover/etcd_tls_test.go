package discover

import (
	"context"
	"crypto/tls"
	"errors"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/pkg/rpc/mtls/mtlstest"
)

// TestEtcdWithTLSAndUsers registers with an etcd that has TLS and authentication, and finds the
// entry. Without the password, neither works.
func TestEtcdWithTLSAndUsers(t *testing.T) {
	authority, pair := mtlstest.NewAuthority(t), mtlstest.NewPair(t)
	authority.Issue(t, pair)
	t.Setenv("SSL_CERT_FILE", authority.File) // no other test of this package reads the system's authorities
	s := serveTLS(t, pair)
	requireUsers(t, s)
	source, err := Parse(s.url())
	if err != nil {
		t.Fatal(err)
	}
	refused := etcd{endpoints: []string{s.addr}, prefix: "whence/test/", secure: true}
	ctx, cancel := context.WithTimeout(t.Context(), polltest.Patience)
	defer cancel()
	if err := refused.watch(ctx, nil, nil, func([]Target) {}); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("without a password: %v", err)
	}
	t.Setenv(userVariable, "root")
	t.Setenv(passwordVariable, "secret")
	l := follow(t, source)
	keep(t, s, "a:1", &l.Log)
	polltest.Eventually(t, "the registered service is found", func() bool { return l.last() == "a:1" })
}

// requireUsers enables authentication in s, with the user root.
func requireUsers(t *testing.T, s *server) {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{s.addr}, TLS: &tls.Config{MinVersion: tls.VersionTLS12}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), polltest.Patience)
	defer cancel()
	if _, err := client.UserAdd(ctx, "root", "secret"); err != nil {
		t.Fatal(err)
	}
	if _, err := client.UserGrantRole(ctx, "root", "root"); err != nil {
		t.Fatal(err)
	}
	if _, err := client.AuthEnable(ctx); err != nil {
		t.Fatal(err)
	}
}
