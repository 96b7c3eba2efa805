package toolcall

import (
	"encoding/json"
	"strings"

	"github.com/whence-dev/whence/chat-service/marker"
)

const (
	parameterOpen  = "<parameter="
	parameterClose = "</parameter>"
)

// xmlArguments are the arguments of a call that come as <parameter=key>value</parameter>, to be said as an object.
type xmlArguments struct {
	begun bool
	value string // what has come of the one under way
}

// open returns what stands before a member of the object.
func (x *xmlArguments) open(key string) string {
	before := ", "
	if !x.begun {
		before, x.begun = "{", true
	}
	return before + quoted(key) + ": "
}

// xmlParameters is between parameters. What is not one is left out, up to the end of the call.
func xmlParameters(x *xmlArguments) state {
	return func(p *Parser) bool {
		at, which := marker.Find(p.buf, p.last, parameterOpen, xmlClose, hermesClose)
		p.buf = p.buf[at:]
		switch which {
		case 0:
			key, rest, ok := strings.Cut(p.buf[len(parameterOpen):], ">")
			if !ok {
				return false
			}
			p.arguments(x.open(key))
			p.buf, p.state = rest, xmlValue(x)
			return true
		case 1:
			p.buf = p.buf[len(xmlClose):]
		case -1:
			return false
		}
		if !x.begun {
			p.arguments("{")
		}
		p.arguments("}")
		p.state = hermesTail
		return true
	}
}

// xmlValue is within a parameter. Its value is given out at once: only its end says whether it is JSON or text.
func xmlValue(x *xmlArguments) state {
	return func(p *Parser) bool {
		at, which := marker.Find(p.buf, p.last, parameterClose)
		x.value += p.buf[:at]
		if p.buf = p.buf[at:]; which < 0 && !p.last {
			return false
		}
		value := strings.TrimSuffix(strings.TrimPrefix(x.value, "\n"), "\n")
		x.value = ""
		if !json.Valid([]byte(value)) {
			value = quoted(value)
		}
		p.arguments(value)
		if which < 0 {
			return false // cut short
		}
		p.buf, p.state = p.buf[len(parameterClose):], xmlParameters(x)
		return true
	}
}

func quoted(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // a string has JSON
	}
	return string(b)
}
