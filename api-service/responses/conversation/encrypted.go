package conversation

import (
	"encoding/base64"
	"encoding/json"
	"strings"

	"github.com/whence-dev/whence/api-service/strict"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// encryptedPrefix begins each encrypted_content that this package has made.
const encryptedPrefix = "whence-1:"

// Encrypt returns reasoning in the form of encrypted_content. It hides nothing: the item has the
// same text in its content. It serves clients that keep only the encrypted_content and send that
// back in the next request, so that the template sees the reasoning of earlier turns.
func Encrypt(reasoning string) string {
	return encryptedPrefix + base64.RawStdEncoding.EncodeToString([]byte(reasoning))
}

// decrypt parses an encrypted_content. The encrypted_content of another server cannot be read here.
func decrypt(param string, raw json.RawMessage) (string, error) {
	text, err := strict.String(param, raw)
	if err != nil || text == "" {
		return "", err
	}
	encoded, ours := strings.CutPrefix(text, encryptedPrefix)
	reasoning, err := base64.RawStdEncoding.DecodeString(encoded)
	if !ours || err != nil {
		return "", streamerr.InvalidParam(param, "%s was not made by this service, and cannot be read here; leave the item out", param).WithCode("invalid_encrypted_content")
	}
	return string(reasoning), nil
}
