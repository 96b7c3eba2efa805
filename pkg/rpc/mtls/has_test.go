package mtls

import (
	"crypto/x509"
	"net/url"
	"testing"
)

func TestNamesWithASchemeAreURIs(t *testing.T) {
	const id = "spiffe://example.org/ns/prod/sa/chat-service"
	uri, err := url.Parse(id)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		leaf *x509.Certificate
		name string
		want bool
	}{
		{&x509.Certificate{URIs: []*url.URL{uri}}, id, true},
		{&x509.Certificate{DNSNames: []string{id}}, id, false},
		{&x509.Certificate{DNSNames: []string{"Chat.internal"}}, "chat.internal", true},
		{&x509.Certificate{URIs: []*url.URL{{Path: "chat.internal"}}}, "chat.internal", false},
	} {
		if got := has(test.leaf, test.name); got != test.want {
			t.Errorf("URIs %v, DNS names %q: has %q is %v", test.leaf.URIs, test.leaf.DNSNames, test.name, got)
		}
	}
}
