package connection_test

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A sealer makes the records of a client of TLS 1.3 with AES-128-GCM, whose secret it knows.
type sealer struct {
	secret []byte
	sent   uint64 // records under the secret
}

// newSealer returns the sealer of a connection that has sent nothing since its handshake. log is its key
// log.
func newSealer(t *testing.T, log string) *sealer {
	t.Helper()
	for line := range strings.Lines(log) {
		if f := strings.Fields(line); f[0] == "CLIENT_TRAFFIC_SECRET_0" {
			secret, err := hex.DecodeString(f[2])
			if err != nil {
				t.Fatal(err)
			}
			return &sealer{secret: secret}
		}
	}
	t.Fatal("the key log has no secret")
	return nil
}

// derive is HKDF-Expand-Label (RFC 8446, section 7.1) without a context.
func (s *sealer) derive(t *testing.T, label string, size int) []byte {
	t.Helper()
	label = "tls13 " + label
	info := binary.BigEndian.AppendUint16(nil, uint16(size))
	info = append(append(append(info, byte(len(label))), label...), 0)
	b, err := hkdf.Expand(sha256.New, s.secret, string(info), size)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// seal returns a record.
func (s *sealer) seal(t *testing.T, kind byte, content string) []byte {
	t.Helper()
	block, err := aes.NewCipher(s.derive(t, "key", 16))
	if err != nil {
		t.Fatal(err)
	}
	sealing, err := cipher.NewGCM(block)
	if err != nil {
		t.Fatal(err)
	}
	nonce := s.derive(t, "iv", sealing.NonceSize())
	for i, b := range binary.BigEndian.AppendUint64(nil, s.sent) {
		nonce[len(nonce)-8+i] ^= b
	}
	s.sent++
	head := binary.BigEndian.AppendUint16([]byte{23, 3, 3}, uint16(len(content)+1+sealing.Overhead()))
	return sealing.Seal(head, nonce, append([]byte(content), kind), head)
}

// update returns a record with an update of the client's keys that asks for one of the server's.
func (s *sealer) update(t *testing.T) []byte {
	t.Helper()
	b := s.seal(t, 22, "\x18\x00\x00\x01\x01")
	s.secret, s.sent = s.derive(t, "traffic upd", sha256.Size), 0
	return b
}

// TestUpdatesOfKeysAreBounded: each is answered, and a client that does not read the answers is not
// served for ever.
func TestUpdatesOfKeysAreBounded(t *testing.T) {
	own, theirs := certified(t)
	synctest.Test(t, func(t *testing.T) {
		server, end := newPipe()
		s := newStand()
		s.server.TLS = own
		defer s.serve(server, end)()
		var log bytes.Buffer
		theirs.MinVersion, theirs.KeyLogWriter = tls.VersionTLS13, &log
		conn := tls.Client(end, theirs)
		if err := conn.Handshake(); err != nil {
			t.Fatal(err)
		}
		if conn.ConnectionState().CipherSuite != tls.TLS_AES_128_GCM_SHA256 {
			t.Skip("this machine prefers another cipher")
		}
		seals := newSealer(t, log.String())
		begun := time.Now()
		const most = window / 2 // their answers would take ten times as much as the client leaves unread
		sent := 0
		for ; sent < most; sent++ {
			record := seals.update(t)
			if sent%10 == 0 { // more updates in a row are refused
				record = append(record, seals.seal(t, 23, "\r")...)
			}
			if end.Offer(record) < len(record) {
				break
			}
			synctest.Wait()
		}
		<-s.over
		if sent == most || time.Since(begun) > 0 {
			t.Errorf("the server takes %d updates of keys, in %v", sent, time.Since(begun))
		}
	})
}
