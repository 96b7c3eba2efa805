package streamerr

import "encoding/json"

// An envelope is the error object of OpenAI's API, in bodies and in data lines of streams.
type envelope struct {
	Error errorObject `json:"error"`
}

type errorObject struct {
	Message string     `json:"message"`
	Type    string     `json:"type"`
	Param   *string    `json:"param"`
	Code    *string    `json:"code"`
	Whence  *Extension `json:"whence,omitempty"`
}

// An Extension is the member "whence" of an error object: the fields of an Error that the API has
// no field for.
type Extension struct {
	Reason string `json:"reason"`
	Origin string `json:"origin,omitempty"`
	Path   Path   `json:"path,omitempty"` // origin first
	Param  string `json:"param,omitempty"`
	Code   string `json:"code,omitempty"`
}

// Extension returns all fields of e except the message.
func (e *Error) Extension() Extension {
	return Extension{Reason: e.Reason.String(), Origin: e.Path.Origin(), Path: e.Path, Param: e.Param, Code: CleanCode(e.Code)}
}

// JSON returns the error object of OpenAI's API in one line:
//
//	{"error":{"message","type","param","code","whence":{"reason","origin","path"}}}
//
// type is the result of Type, and code is the result of APICode, or null if that is "".
func (e *Error) JSON() []byte {
	whence := e.Extension()
	whence.Param, whence.Code = "", ""
	obj := errorObject{Message: e.Text(), Type: e.Type(), Whence: &whence}
	if code := e.APICode(); code != "" {
		obj.Code = &code
	}
	if e.Param != "" {
		obj.Param = &e.Param
	}
	b, err := json.Marshal(envelope{obj})
	if err != nil {
		panic(err) // cannot happen: the object has only strings
	}
	return b
}

// ParseJSON parses the output of JSON, or the error object of another OpenAI-compatible server. It
// returns ok false for any other input. The Reason of another server's object is Unspecified.
func ParseJSON(b []byte) (e *Error, ok bool) {
	var env envelope
	_ = json.Unmarshal(b, &env) // without a message, b is not an error object
	obj := &env.Error
	if obj.Message == "" {
		return nil, false
	}
	e = &Error{Message: obj.Message}
	if obj.Whence != nil {
		e.Reason, e.Path = ParseReason(obj.Whence.Reason), NewPath(obj.Whence.Path...)
	}
	if obj.Param != nil {
		e.Param = *obj.Param
	}
	if obj.Code != nil {
		e.Code = CleanCode(*obj.Code)
	}
	return e, true
}
