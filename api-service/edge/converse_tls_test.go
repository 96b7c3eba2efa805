package edge_test

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/whence-dev/whence/api-service/edge"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/internal/wstest"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// converseTLS opens a conversation over TLS.
func converseTLS(t *testing.T, url, id, script string, roots *x509.CertPool) *wstest.Client {
	t.Helper()
	dialer := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096) })
	}}
	conn, err := tls.DialWithDialer(&dialer, "tcp", strings.TrimPrefix(url, "https://"), &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}})
	if err != nil {
		t.Fatal(err)
	}
	c, refused := wstest.Over(t, conn, url+"/v1/converse", "X-Request-Id", id, "Origin", url)
	if c == nil {
		t.Fatal(refused)
	}
	say(t, c, chatOf(script))
	return c
}

// TestConversationOverTLS checks that the messages of both sides pass, and how the
// conversation ends.
func TestConversationOverTLS(t *testing.T) {
	cert, key, roots := writeCertificate(t)
	plain, chat := start(t, func(c *edge.Config) {
		c.TLS.Cert, c.TLS.Key = cert, key
		c.WriteTimeout, c.ClientTimeout, c.MaxUnsent = time.Hour, time.Hour, 4096
	})
	url := strings.Replace(plain, "http:", "https:", 1)

	c := converseTLS(t, url, "talk", "start m say one end x", roots)
	c.Until("turn_end")
	c.Say("{}")
	wantEnd(t, c.End(), "completed", "engine > chat-service > api-service", 1000)

	for how, leave := range map[string]func(c *wstest.Client){
		"close-frame":       func(c *wstest.Client) { c.Raw(wstest.CloseFrame(1001)); c.End() },
		"end-of-connection": func(c *wstest.Client) { _ = c.Close() },
	} {
		c = converseTLS(t, url, how, "start m say one wait 1m", roots)
		c.Until("delta")
		leave(c)
		if cause := streamerr.As(polltest.Receive(t, "the cause of the stop", chat.causes)); cause.Reason != streamerr.ClientGone || cause.Path.String() != "client > api-service" {
			t.Errorf("%s: %v", how, cause)
		}
	}
}
