package conversation

import (
	"encoding/base64"
	"encoding/json"
	"strings"

	"github.com/whence-dev/whence/api-service/strict"
)

// encryptedPrefix begins each encrypted_content that this package has made.
const encryptedPrefix = "whence-1:"

// Encrypt returns reasoning in the form of encrypted_content. It hides nothing: the item has the
// same text in its content. It serves clients that keep only the encrypted_content and send that
// back in the next request, so that the template sees the reasoning of earlier turns.
func Encrypt(reasoning string) string {
	return encryptedPrefix + base64.RawStdEncoding.EncodeToString([]byte(reasoning))
}

// decrypt returns the text of an encrypted_content. ours is false for one that Encrypt has not made,
// which cannot be read here.
func decrypt(param string, raw json.RawMessage) (text string, ours bool, err error) {
	encrypted, err := strict.String(param, raw)
	if err != nil || encrypted == "" {
		return "", true, err
	}
	encoded, ours := strings.CutPrefix(encrypted, encryptedPrefix)
	decoded, invalid := base64.RawStdEncoding.DecodeString(encoded)
	if ours = ours && invalid == nil; !ours {
		decoded = nil
	}
	return string(decoded), ours, nil
}
