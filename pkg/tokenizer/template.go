package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
)

// A template describes the result of Encode: the text's ids, and the post-processor's ids around
// them.
type template []templatePart

// A templatePart is the text, or ids that are added only with special tokens.
type templatePart struct {
	text bool
	ids  []uint32
}

// newTemplate reads the post-processor of a vocabulary of size ids.
func newTemplate(c *component, size int) (template, error) {
	steps, err := c.steps("processors")
	if err != nil {
		return nil, err
	}
	var t template
	for i := range steps {
		switch steps[i].Type {
		case "ByteLevel": // affects only offsets
		case "TemplateProcessing", "BertProcessing", "RobertaProcessing":
			if t != nil {
				return nil, steps[i].fail(errors.New("there is more than one"))
			}
			read := readTemplate
			if steps[i].Type != "TemplateProcessing" {
				read = readFrame
			}
			if t, err = read(&steps[i], size); err != nil {
				return nil, steps[i].fail(err)
			}
		default:
			return nil, steps[i].unsupported()
		}
	}
	if t == nil {
		t = template{{text: true}}
	}
	return t, nil
}

// readFrame reads a post-processor that puts the token cls before a text, and sep behind it.
func readFrame(c *component, size int) (template, error) {
	var opt struct{ Cls, Sep []json.RawMessage }
	if err := c.options(&opt); err != nil {
		return nil, err
	}
	t := template{{}, {text: true}, {}}
	for at, token := range map[int][]json.RawMessage{0: opt.Cls, 2: opt.Sep} {
		var id uint32
		if len(token) != 2 || json.Unmarshal(token[1], &id) != nil || int64(id) >= int64(size) {
			return nil, errors.New("cls or sep is not a token and its id")
		}
		t[at].ids = []uint32{id}
	}
	return t, nil
}

func readTemplate(c *component, size int) (template, error) {
	var opt struct {
		Single []struct {
			Sequence *struct{ ID string }
			Special  *struct{ ID string } `json:"SpecialToken"`
		}
		Tokens map[string]struct{ IDs []uint32 } `json:"special_tokens"`
	}
	if err := c.options(&opt); err != nil {
		return nil, err
	}
	t := template{}
	if len(opt.Single) > maxSteps {
		return nil, fmt.Errorf("the template has %d parts; at most %d are allowed", len(opt.Single), maxSteps)
	}
	texts := 0
	for _, part := range opt.Single {
		switch {
		case part.Sequence != nil && part.Sequence.ID == "A":
			if texts++; texts > 1 {
				return nil, errors.New("the template has the text more than once")
			}
			t = append(t, templatePart{text: true})
		case part.Sequence != nil:
			return nil, fmt.Errorf("the template for one text has a sequence %q", part.Sequence.ID)
		case part.Special != nil:
			token, ok := opt.Tokens[part.Special.ID]
			if !ok {
				return nil, fmt.Errorf("%q is not among the special_tokens", part.Special.ID)
			}
			if len(token.IDs) > maxSteps {
				return nil, fmt.Errorf("%.100q has %d ids; at most %d are allowed", part.Special.ID, len(token.IDs), maxSteps)
			}
			for _, id := range token.IDs {
				if int64(id) >= int64(size) {
					return nil, fmt.Errorf("%q has id %d, which no token has", part.Special.ID, id)
				}
			}
			t = append(t, templatePart{ids: token.IDs})
		default:
			return nil, errors.New("the template has a part that is neither Sequence nor SpecialToken")
		}
	}
	return t, nil
}
