package conversation

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// maxFlat bounds the name of a function, in bytes. It is OpenAI's limit.
const maxFlat = 64

// Flat returns the name that a model knows for a function of a namespace. If both names together
// are too long, a hash replaces the part that does not fit: the end of the namespace before the end
// of the name, because the name tells the model more.
func Flat(namespace, name string) string {
	const between = "__"
	if flat := namespace + between + name; len(flat) <= maxFlat {
		return flat
	}
	sum := sha256.Sum256([]byte(namespace + "\x00" + name))
	hash := "_" + hex.EncodeToString(sum[:4])
	end := hash + between + cut(name, maxFlat-len(hash)-len(between))
	return cut(namespace, maxFlat-len(end)) + end
}

// cut returns at most n bytes of text. It drops a character that does not fit completely.
func cut(text string, n int) string {
	return strings.ToValidUTF8(text[:min(len(text), n)], "")
}
