package follow

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"time"

	"github.com/whence-dev/whence/api-service/replay"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// TokenParam is the query's parameter that holds a read token: EventSource can send no headers.
const TokenParam = "token"

// macSize is how much of the HMAC a token holds, in bytes.
const macSize = 16

// A Keyring decides who may read a stream: whoever has the credentials that made it, or a token that it has signed.
type Keyring struct {
	key []byte
	// Open lets everybody read streams that were made without credentials: for listeners that only this machine reaches.
	Open bool
}

// NewKeyring returns a keyring that signs with secret; instances with the same secret take each other's tokens. An empty one
// is replaced by one that nobody knows, so that tokens end with the process.
func NewKeyring(secret string) *Keyring {
	if secret == "" {
		secret = rand.Text()
	}
	key := sha256.Sum256([]byte("whence read token\n" + secret))
	return &Keyring{key: key[:]}
}

// Token returns a token for one stream.
func (k *Keyring) Token(id string, expires time.Time) string {
	b := binary.BigEndian.AppendUint64(nil, uint64(expires.Unix()))
	return base64.RawURLEncoding.EncodeToString(append(b, k.mac(id, b)...))
}

func (k *Keyring) mac(id string, expires []byte) []byte {
	h := hmac.New(sha256.New, k.key)
	h.Write(expires)
	h.Write([]byte(id))
	return h.Sum(nil)[:macSize]
}

// check reports what is wrong with a token.
func (k *Keyring) check(id, token string) error {
	b, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || len(b) != 8+macSize || !hmac.Equal(b[8:], k.mac(id, b[:8])) {
		return &streamerr.Error{Reason: streamerr.Forbidden, Param: TokenParam, Message: "the token is not for this stream"}
	}
	if time.Now().Unix() >= int64(binary.BigEndian.Uint64(b)) {
		return &streamerr.Error{Reason: streamerr.Unauthenticated, Param: TokenParam, Message: "the token has expired"}
	}
	return nil
}

// Known reports whether a token says that a stream was made here, though nothing else may know of it any more.
func (k *Keyring) Known(id, token string) bool { return token != "" && k.check(id, token) == nil }

// May reports whether somebody with these credentials and this token, either of which may be empty, may read a stream.
func (k *Keyring) May(h replay.Head, credentials, token string) error {
	owner := Digest(credentials)
	switch {
	case h.Owner != "" && subtle.ConstantTimeCompare([]byte(h.Owner), []byte(owner)) == 1:
		return nil
	case token != "":
		return k.check(h.ID, token)
	case h.Owner == "" && k.Open:
		return nil
	case owner != "":
		return &streamerr.Error{Reason: streamerr.Forbidden, Message: "the stream was made with other credentials"}
	default:
		return &streamerr.Error{Reason: streamerr.Unauthenticated, Message: "reading a stream takes its read_token, as ?token=, or the Authorization that made it"}
	}
}

// Digest returns a digest of a secret, for comparing; that of "" is "".
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
