package world

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"sync"
	"time"

	"golang.org/x/net/http2"
)

// pair is the certificate of all api-services. The length of its signatures is always the same, unlike
// that of ECDSA.
var pair = sync.OnceValue(func() tls.Certificate {
	public, secret, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		panic(err) // never
	}
	text := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"localhost"}, BasicConstraintsValid: true, IsCA: true,
		NotBefore: time.Unix(0, 0), NotAfter: time.Unix(1<<32, 0), // virtual time begins in 2000
	}
	der, err := x509.CreateCertificate(rand.Reader, text, text, public, secret)
	if err != nil {
		panic(err) // never
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: secret}
})

// certified returns the configurations of TLS of api-service and its clients. A handshake is as cheap as
// it can be.
func certified() (own, theirs *tls.Config) {
	own = &tls.Config{
		Certificates: []tls.Certificate{pair()}, NextProtos: []string{http2.NextProtoTLS, "http/1.1"}, MinVersion: tls.VersionTLS13,
		DynamicRecordSizingDisabled: true, SessionTicketsDisabled: true,
	}
	root, err := x509.ParseCertificate(pair().Certificate[0])
	if err != nil {
		panic(err) // never
	}
	theirs = &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "localhost", MinVersion: tls.VersionTLS13, CurvePreferences: []tls.CurveID{tls.X25519}}
	theirs.RootCAs.AddCert(root)
	return own, theirs
}
