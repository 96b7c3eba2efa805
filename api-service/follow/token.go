package follow

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"time"

	"github.com/whence-dev/whence/pkg/streamerr"
)

// TokenParam is the query parameter with a read token: EventSource cannot send headers.
const TokenParam = "token"

// macSize is the number of bytes of the HMAC in a token.
const macSize = 16

// timeSize is the number of bytes of the expiry in a token.
const timeSize = 8

// A Keyring signs read tokens and checks them.
//
// A token is an expiry, the epoch of the stream's log, and an HMAC over both and the stream's id.
// An id may be reused, but an epoch never is: a token reads only the stream that it was made for,
// and no earlier or later stream with the same id.
type Keyring struct{ key []byte }

// NewKeyring returns a keyring that signs with secret. Instances with the same secret accept each
// other's tokens. An empty secret is replaced by a random one, so tokens expire with the process.
func NewKeyring(secret string) *Keyring {
	if secret == "" {
		secret = rand.Text()
	}
	key := sha256.Sum256([]byte("whence read token\n" + secret))
	return &Keyring{key: key[:]}
}

// Token returns a token for the stream that has this id and this epoch.
func (k *Keyring) Token(id, epoch string, expires time.Time) string {
	b := binary.BigEndian.AppendUint64(nil, uint64(expires.Unix()))
	b = append(b, epoch...)
	return base64.RawURLEncoding.EncodeToString(append(b, k.mac(id, b)...))
}

func (k *Keyring) mac(id string, signed []byte) []byte {
	h := hmac.New(sha256.New, k.key)
	h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(id))))
	h.Write([]byte(id))
	h.Write(signed)
	return h.Sum(nil)[:macSize]
}

// open returns the expiry and the epoch of a token that was signed here for a stream with this id.
func (k *Keyring) open(id, token string) (expires int64, epoch string, ok bool) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || len(b) <= timeSize+macSize {
		return 0, "", false
	}
	signed, mac := b[:len(b)-macSize], b[len(b)-macSize:]
	if !hmac.Equal(mac, k.mac(id, signed)) {
		return 0, "", false
	}
	return int64(binary.BigEndian.Uint64(signed)), string(signed[timeSize:]), true
}

// Check reports whether a token is valid for the stream with this id and this epoch. The error
// means that the token was valid, but has expired.
func (k *Keyring) Check(id, epoch, token string) (valid bool, err error) {
	expires, of, ok := k.open(id, token)
	switch {
	case !ok || epoch == "" || of != epoch:
		return false, nil
	case time.Now().Unix() >= expires:
		return false, &streamerr.Error{Reason: streamerr.Unauthenticated, Param: TokenParam, Message: "the token has expired; POST /v1/streams/{id}/token issues a new token"}
	default:
		return true, nil
	}
}

// Known reports whether a token proves that a stream with this id once existed, even if no record
// of the stream is left.
func (k *Keyring) Known(id, token string) bool {
	expires, _, ok := k.open(id, token)
	return ok && time.Now().Unix() < expires
}

// Digest returns a digest of a secret for comparisons; the digest of "" is "".
func Digest(parts ...string) string {
	h := sha256.New()
	empty := true
	for _, part := range parts {
		empty = empty && part == ""
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
		h.Write([]byte(part))
	}
	if empty {
		return ""
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}
