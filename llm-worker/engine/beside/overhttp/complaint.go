package overhttp

import (
	"encoding/json"
	"strconv"

	"github.com/whence-dev/whence/llm-worker/engine/beside"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// An errorBody is the JSON that servers write for an error: OpenAI's error object, the same fields on the
// top level (vLLM and SGLang), a text in "error", or "detail" for a request that FastAPI has refused.
type errorBody struct {
	Error   json.RawMessage `json:"error"`
	Message string          `json:"message"`
	Detail  json.RawMessage `json:"detail"`
	errorFields
}

// errorFields are the members of an error object that programs read. Servers write numbers as numbers or
// as text.
type errorFields struct {
	Type       json.RawMessage `json:"type"`
	Code       json.RawMessage `json:"code"`
	Status     json.RawMessage `json:"status_code"`
	RetryAfter json.RawMessage `json:"retry_after"` // seconds
}

// ReadComplaint reads a server's error from a body or from the data of an event. If the form is unknown, the whole
// text is the message.
func ReadComplaint(body []byte) *beside.Complaint {
	var s errorBody
	var object struct {
		Message string               `json:"message"`
		Whence  *streamerr.Extension `json:"whence"` // of another Whence
		errorFields
	}
	var words string
	_ = json.Unmarshal(body, &s) // fields of another type stay empty
	_ = json.Unmarshal(s.Error, &object)
	_ = json.Unmarshal(s.Error, &words)
	c := new(beside.Complaint)
	s.into(c)
	object.into(c)
	if object.Whence != nil {
		c.EndReason, c.Path = streamerr.ParseReason(object.Whence.Reason), streamerr.NewPath(object.Whence.Path...)
	}
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

// into copies the particulars into c. A numeric code is an HTTP status.
func (p *errorFields) into(c *beside.Complaint) {
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
