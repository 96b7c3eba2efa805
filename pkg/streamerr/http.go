package streamerr

import "encoding/json"

// The OpenAI error object, as it stands in bodies and in mid-stream data lines, with the path as an extension.
type envelope struct {
	Error errorObject `json:"error"`
}

type errorObject struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    *string `json:"code"`
	Path    Path    `json:"path,omitempty"`
}

// JSON returns {"error":{"message","type","param","code","path"}} in one line. code is the Reason's word.
func (e *Error) JSON() []byte {
	code := e.Reason.String()
	obj := errorObject{Message: e.Text(), Type: e.Reason.Type(), Code: &code, Path: e.Path}
	if e.Param != "" {
		obj.Param = &e.Param
	}
	b, err := json.Marshal(envelope{obj})
	if err != nil {
		panic(err) // strings only
	}
	return b
}

// ParseJSON reads what JSON wrote, or the error object of another OpenAI-compatible server; ok is false for anything
// else. A code that is not one of ours leaves the Reason Unspecified.
func ParseJSON(b []byte) (e *Error, ok bool) {
	var env envelope
	_ = json.Unmarshal(b, &env) // what is not an error object has no message
	if env.Error.Message == "" {
		return nil, false
	}
	e = &Error{Message: env.Error.Message, Path: NewPath(env.Error.Path...)}
	if env.Error.Param != nil {
		e.Param = *env.Error.Param
	}
	if env.Error.Code != nil {
		e.Reason = ParseReason(*env.Error.Code)
	}
	return e, true
}
