package tokenizer

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
)

// tekkenData is the part of a tekken.json that is read.
type tekkenData struct {
	Config struct {
		Pattern  string
		Size     int `json:"default_vocab_size"`
		Specials int `json:"default_num_special_tokens"`
	}
	Vocab []struct {
		Rank  int
		Bytes string `json:"token_bytes"`
	}
	Special []struct {
		Rank    int
		Text    string `json:"token_str"`
		Control *bool  `json:"is_control"`
	} `json:"special_tokens"`
}

// tekkenTokens are the special tokens of files that list none.
var tekkenTokens = []string{
	"<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CALLS]",
	"[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]", "[PREFIX]", "[MIDDLE]", "[SUFFIX]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]",
}

// readTekken reads a tekken.json. The special tokens have the first ids, and the vocabulary the ids
// behind them; the tokens of the vocabulary beyond the size of the model are unused.
func readTekken(data []byte) (*tokenizerFile, error) {
	var d tekkenData
	if err := json.Unmarshal(data, &d); err != nil {
		return nil, err
	}
	c := &d.Config
	size := c.Size - c.Specials
	switch {
	case c.Specials < len(tekkenTokens) || size < 0 || c.Size > maxID:
		return nil, fmt.Errorf("default_vocab_size is %d and default_num_special_tokens is %d", c.Size, c.Specials)
	case len(d.Vocab) < size:
		return nil, fmt.Errorf("the vocabulary has %d tokens, and must have %d", len(d.Vocab), size)
	case len(d.Special) > c.Specials:
		return nil, fmt.Errorf("there are %d special tokens, and must not be more than %d", len(d.Special), c.Specials)
	}
	tokens := make(map[uint32]string, size)
	for i, token := range d.Vocab[:size] {
		raw, err := base64.StdEncoding.DecodeString(token.Bytes)
		if err != nil || len(raw) == 0 || token.Rank != i {
			return nil, fmt.Errorf("token %d of the vocabulary has the rank %d and the bytes %.40q", i, token.Rank, token.Bytes)
		}
		tokens[uint32(c.Specials+i)] = string(raw)
	}
	added, begin, err := d.added()
	if err != nil {
		return nil, err
	}
	f, err := newByteFile(tokens, c.Pattern, added)
	if err != nil {
		return nil, err
	}
	f.begin(begin)
	return f, nil
}

// added returns the special tokens, and the id of the token that begins every text.
func (d *tekkenData) added() (all []addedToken, begin uint32, err error) {
	if d.Special == nil {
		for i, token := range tekkenTokens {
			all = append(all, specialToken(i, "%s", token))
		}
	}
	for i, token := range d.Special {
		if token.Rank != i || token.Text == "" {
			return nil, 0, fmt.Errorf("special token %d has the rank %d and the text %.40q", i, token.Rank, token.Text)
		}
		t := specialToken(i, "%s", token.Text)
		t.Special = token.Control == nil || *token.Control
		all = append(all, t)
	}
	for i := len(all); i < d.Config.Specials; i++ {
		all = append(all, specialToken(i, "<SPECIAL_%d>", i))
	}
	for _, token := range all {
		if token.Content == "<s>" {
			return all, *token.ID, nil
		}
	}
	return nil, 0, errors.New(`there is no special token "<s>"`)
}
