package openai

import (
	"encoding/json"
	"slices"
	"strconv"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
)

// setTokenIDs parses return_token_ids, which is not in OpenAI's API. The names of the field, and of
// the members of the answer, are vLLM's.
func setTokenIDs(c *Chat, param string, raw json.RawMessage) (err error) {
	c.tokenIDs, err = boolean(param, raw)
	c.Request.TellIds, c.Request.TellPrompts = c.tokenIDs, c.tokenIDs
	return err
}

// withEnd returns the ids of an answer with the token that ended it, as vLLM does. Log-probabilities have none for
// that token, and beside them each id has one, so it is left out there.
func (c *Chat) withEnd(ids []uint32, matched *uint32) []uint32 {
	if !c.tokenIDs || matched == nil || c.Request.GetSampling().Logprobs != nil {
		return ids
	}
	return append(slices.Clip(ids), *matched)
}

// promptOf returns the tokens of a prompt, or nil if the request does not ask for them.
func promptOf(started *llmv1.Started, number int) []uint32 {
	if number >= len(started.GetPrompts()) {
		return nil
	}
	return started.GetPrompts()[number].GetIds()
}

// appendIDs appends a member with token ids, unless there are none.
func appendIDs(b []byte, name string, ids []uint32) []byte {
	if len(ids) == 0 {
		return b
	}
	b = append(append(append(b, `,"`...), name...), `":[`...)
	for i, id := range ids {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendUint(b, uint64(id), 10)
	}
	return append(b, ']')
}

// nameOf returns the text of a token, or "token_id:" and its id.
func nameOf(t *chatv1.TokenLogprob, byID bool) string {
	if byID {
		return "token_id:" + strconv.FormatUint(uint64(t.GetId()), 10)
	}
	return t.GetToken()
}
