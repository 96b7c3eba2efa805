package discover

import (
	"net"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
)

func FuzzSources(f *testing.F) {
	for _, text := range []string{"a:1,[::1]:2", "dns:///workers:8082", "dns://10.0.0.1:53/workers:1", "srv:///_grpc._tcp.x", "etcd://h:1,g:2/whence/workers", "://"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse(text)
		if err != nil {
			return
		}
		if s.String() != text || (s.static == nil) == (s.watch == nil) {
			t.Errorf("%q: %+v", text, s)
		}
		for _, addr := range s.Static() {
			if _, _, err := net.SplitHostPort(addr); err != nil {
				t.Error(err)
			}
		}
	})
}

func FuzzEntries(f *testing.F) {
	for _, value := range []string{`{"address":"10.0.0.7:8082","model":"m"}`, `{"address":7}`, `[]`, ``} {
		f.Add([]byte(value))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		if target, ok := read(&mvccpb.KeyValue{Value: value}); ok {
			if _, _, err := net.SplitHostPort(target.Addr); err != nil {
				t.Error(err)
			}
		}
	})
}
