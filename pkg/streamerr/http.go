package streamerr

import "encoding/json"

// envelope is the OpenAI error object of bodies and mid-stream data lines, with the reason and the
// path as extensions.
type envelope struct {
	Error errorObject `json:"error"`
}

type errorObject struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    *string `json:"code"`
	Reason  string  `json:"reason,omitempty"`
	Path    Path    `json:"path,omitempty"`
}

// JSON returns {"error":{"message","type","param","code","reason","path"}} in one line. code is e's
// Code, or the Reason's word if there is none; reason is always the Reason's word.
func (e *Error) JSON() []byte {
	reason, code := e.Reason.String(), CleanCode(e.Code)
	if code == "" {
		code = reason
	}
	obj := errorObject{Message: e.Text(), Type: e.Reason.Type(), Code: &code, Reason: reason, Path: e.Path}
	if e.Param != "" {
		obj.Param = &e.Param
	}
	b, err := json.Marshal(envelope{obj})
	if err != nil {
		panic(err) // strings only
	}
	return b
}

// ParseJSON parses the output of JSON, or the error object of another OpenAI-compatible server; ok
// is false for anything else. Without a reason, the Reason follows from code, or is Unspecified if
// code is not one of ours.
func ParseJSON(b []byte) (e *Error, ok bool) {
	var env envelope
	_ = json.Unmarshal(b, &env) // input that is not an error object has no message
	obj := &env.Error
	if obj.Message == "" {
		return nil, false
	}
	e = &Error{Message: obj.Message, Reason: ParseReason(obj.Reason), Path: NewPath(obj.Path...)}
	if obj.Param != nil {
		e.Param = *obj.Param
	}
	switch {
	case obj.Code == nil:
	case obj.Reason == "" && ParseReason(*obj.Code) != Unspecified:
		e.Reason = ParseReason(*obj.Code)
	case *obj.Code != obj.Reason:
		e.Code = CleanCode(*obj.Code)
	}
	return e, true
}
