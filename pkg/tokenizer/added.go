package tokenizer

import (
	"errors"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/whence-dev/whence/pkg/tokenizer/pattern"
)

// An addedToken is matched in the text itself, before the text is split into words: the special
// tokens of chat templates, and other tokens that were added to the vocabulary after its training.
type addedToken struct {
	ID         *uint32 `json:"id"`
	Content    string  `json:"content"`
	SingleWord bool    `json:"single_word"` // matches only between characters that do not belong to a word
	LStrip     bool    `json:"lstrip"`      // includes the white space on its left
	RStrip     bool    `json:"rstrip"`      // includes the white space on its right
	Normalized bool    `json:"normalized"`  // the normalized token matches in normalized text
	Special    bool    `json:"special"`     // may be skipped by decoding
}

// A segment is a part of a text: an added token, or, with id noToken, the text between two added
// tokens.
type segment struct {
	start, end int
	id         uint32
}

// An addedMatcher finds added tokens: the leftmost match, and of several matches there the longest.
// It is immutable.
//
// It is a trie. A walk starts at every position where a token may begin, and is no longer than the
// longest token, so the time is linear in the length of the text.
type addedMatcher struct {
	tokens []addedToken
	root   [256]int32 // children of the root by byte; 0 means none
	nodes  []trieNode // nodes[0] is the root
}

type trieNode struct {
	b              byte
	child, sibling int32 // 0 means none
	token          int32 // index into tokens; -1 means none
}

func newAddedMatcher() *addedMatcher { return &addedMatcher{nodes: make([]trieNode, 1)} }

// add makes content (the token's text, possibly normalized) match as token. If several tokens have
// the same content, the first one wins.
func (m *addedMatcher) add(content string, token addedToken) error {
	if content == "" {
		return errors.New("the normalized token is empty")
	}
	at := int32(0)
	for i := range len(content) {
		down := m.step(at, content[i])
		if down == 0 {
			down = int32(len(m.nodes))
			node := trieNode{b: content[i], token: -1}
			if at == 0 {
				m.root[content[i]] = down
			} else {
				node.sibling = m.nodes[at].child
				m.nodes[at].child = down
			}
			m.nodes = append(m.nodes, node)
		}
		at = down
	}
	if m.nodes[at].token < 0 {
		m.nodes[at].token = int32(len(m.tokens))
		m.tokens = append(m.tokens, token)
	}
	return nil
}

func (m *addedMatcher) step(at int32, b byte) int32 {
	if at == 0 {
		return m.root[b]
	}
	at = m.nodes[at].child
	for at != 0 && m.nodes[at].b != b {
		at = m.nodes[at].sibling
	}
	return at
}

// longest returns the length of the longest token with which text begins, or 0.
func (m *addedMatcher) longest(text string) int {
	if len(m.tokens) == 0 {
		return 0
	}
	at, end := int32(0), 0
	for i := range len(text) {
		if at = m.step(at, text[i]); at == 0 {
			break
		}
		if m.nodes[at].token >= 0 {
			end = i + 1
		}
	}
	return end
}

// next returns the first match in text at or after from.
func (m *addedMatcher) next(text string, from int) (start, end int, token *addedToken) {
	for start = from; start < len(text); start++ {
		if m.root[text[start]] == 0 {
			continue
		}
		at := int32(0)
		for i := start; i < len(text); i++ {
			if at = m.step(at, text[i]); at == 0 {
				break
			}
			if t := m.nodes[at].token; t >= 0 {
				end, token = i+1, &m.tokens[t]
			}
		}
		if token != nil {
			return start, end, token
		}
	}
	return len(text), len(text), nil
}

// split appends the segments of text. No segment is empty.
func (m *addedMatcher) split(dst []segment, text string) []segment {
	if text == "" {
		return dst
	}
	done := 0 // end of the text covered by the segments
	if len(m.tokens) > 0 {
		for from := 0; ; {
			start, end, token := m.next(text, from)
			if token == nil {
				break
			}
			// The search continues after the match itself, even if the token also strips white
			// space after it: the Rust library does so, and finds a next token that begins in that
			// white space.
			from = end
			if token.SingleWord && (endsWithWord(text[:start]) || startsWithWord(text[end:])) {
				continue
			}
			if token.LStrip {
				start = max(done, len(strings.TrimRightFunc(text[:start], unicode.IsSpace)))
			}
			if token.RStrip {
				end = len(text) - len(strings.TrimLeftFunc(text[end:], unicode.IsSpace))
			}
			if done < start {
				dst = append(dst, segment{done, start, noToken})
			}
			dst = append(dst, segment{start, end, *token.ID})
			done = end
		}
	}
	if done < len(text) {
		dst = append(dst, segment{done, len(text), noToken})
	}
	return dst
}

func endsWithWord(s string) bool {
	r, _ := utf8.DecodeLastRuneInString(s)
	return s != "" && pattern.IsWord(r)
}

func startsWithWord(s string) bool {
	r, _ := utf8.DecodeRuneInString(s)
	return s != "" && pattern.IsWord(r)
}
