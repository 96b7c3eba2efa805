package overhttp

import (
	"encoding/json"
	"strconv"

	"github.com/whence-dev/whence/llm-worker/engine/beside"
)

// said is what servers write when something is wrong: OpenAI's error object, the same on the top level (vLLM and SGLang), a text in
// "error", or FastAPI's "detail" where it has refused the request itself.
type said struct {
	Error   json.RawMessage `json:"error"`
	Message string          `json:"message"`
	Detail  json.RawMessage `json:"detail"`
	particulars
}

// particulars are the members of an error object that programs read. Servers write numbers as numbers or as text.
type particulars struct {
	Type       json.RawMessage `json:"type"`
	Code       json.RawMessage `json:"code"`
	Status     json.RawMessage `json:"status_code"`
	RetryAfter json.RawMessage `json:"retry_after"` // seconds
}

// ReadComplaint reads what a server says is wrong, in a body or in the data of an event. A body that has no known form is the message
// as it is.
func ReadComplaint(body []byte) *beside.Complaint {
	var s said
	var object struct {
		Message string `json:"message"`
		particulars
	}
	var words string
	_ = json.Unmarshal(body, &s) // what does not fit leaves the fields empty
	_ = json.Unmarshal(s.Error, &object)
	_ = json.Unmarshal(s.Error, &words)
	c := new(beside.Complaint)
	s.into(c)
	object.into(c)
	switch {
	case object.Message != "":
		c.Message = object.Message
	case words != "":
		c.Message = words
	case s.Message != "":
		c.Message = s.Message
	case len(s.Detail) > 0:
		c.Message = string(s.Detail)
		_ = json.Unmarshal(s.Detail, &c.Message)
	default:
		c.Message = string(body)
	}
	return c
}

// into sets what the particulars say. A code that is a number is a status of HTTP.
func (p *particulars) into(c *beside.Complaint) {
	if text := scalar(p.Type); text != "" {
		c.Type = text
	}
	for _, raw := range []json.RawMessage{p.Code, p.Status} {
		text := scalar(raw)
		if status, err := strconv.Atoi(text); err == nil {
			if status >= 400 && status < 600 {
				c.Status = status
			}
		} else if text != "" {
			c.Code = text
		}
	}
	if after := retryIn(scalar(p.RetryAfter)); after > 0 {
		c.RetryAfter = after
	}
}

// scalar returns a text, or a number as it is written; "" for anything else.
func scalar(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	var number json.Number
	_ = json.Unmarshal(raw, &number)
	return number.String()
}
