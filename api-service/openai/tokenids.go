package openai

import (
	"encoding/json"
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
