package kitexrpc

import (
	"crypto/tls"

	"github.com/cloudwego/kitex/client"
	"github.com/cloudwego/kitex/pkg/remote"
	"google.golang.org/grpc"
)

// DialTLS is Dial over TLS. config has the server's name and the certificate authorities for its
// certificate, and the client's certificate if the server asks for one.
func DialTLS(target string, config *tls.Config, descs ...*grpc.ServiceDesc) (*ClientConn, error) {
	return dial(target, descs, client.WithDialer(remote.NewDefaultDialer()), client.WithGRPCTLSConfig(config))
}
