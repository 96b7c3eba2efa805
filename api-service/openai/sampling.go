package openai

import (
	"encoding/json"
	"strconv"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func float(low, high float64, set func(*llmv1.Sampling, float32)) setter {
	return func(c *Chat, param string, raw json.RawMessage) error {
		v, err := number(param, raw, low, high)
		if err == nil {
			set(c.Request.Sampling, v)
		}
		return err
	}
}

// setMaxTokens parses the maximum number of tokens. -1 means what the context leaves, and so does 0
// for a chat; for an echo, 0 means the prompt alone.
func setMaxTokens(c *Chat, param string, raw json.RawMessage) error {
	if none := string(raw); !c.in.Refuses() && (none == "-1" || none == "0" && !c.completion) {
		c.unlimited = true
		return nil
	}
	least := int64(1)
	if c.completion {
		least = 0
	}
	n, err := count(param, raw, least)
	if err != nil {
		return err
	}
	if c.maxTokens != "" && *n != c.Request.GetSampling().GetMaxTokens() {
		if !c.in.Refuses() { // max_tokens is the older name
			c.in.Ignore(param)
			return nil
		}
		return streamerr.InvalidParam(param, "%s and %s contradict each other", c.maxTokens, param)
	}
	c.maxTokens = param
	c.Request.Sampling.MaxTokens = n
	return nil
}

func setLogitBias(c *Chat, param string, raw json.RawMessage) error {
	items, err := object(param, raw)
	if err != nil {
		return err
	}
	bias := make(map[uint32]float32, len(items))
	for key, raw := range items {
		id, err := strconv.ParseUint(key, 10, 31)
		if err != nil {
			return streamerr.InvalidParam(param, "%s has the key %q; keys must be token ids", param, printable(key))
		}
		if bias[uint32(id)], err = number(param+"."+key, raw, -100, 100); err != nil {
			return err
		}
	}
	c.Request.Sampling.LogitBias = bias
	return nil
}
