package toolcall

import (
	"regexp"
	"strings"

	"github.com/whence-dev/whence/chat-service/reasoning"
)

// Kimi3 is the format of Kimi K3. The whole answer consists of channels, and calls stand in the last
// one. Package reasoning reads the first one.
//
//	<|open|>response<|sep|>I look.<|close|>response<|sep|><|open|>tools<|sep|>
//	<|open|>call tool="get_weather" index="1"<|sep|>
//	<|open|>argument key="city" type="string"<|sep|>Paris<|close|>argument<|sep|>
//	<|close|>call<|sep|><|close|>tools<|sep|>
var Kimi3 = &Format{
	Name: "kimi-k3", Markers: []string{kimi3Open, kimi3Close, kimi3Sep}, begin: kimi3Text, opens: []string{kimi3Tools, kimi3Opens}, id: longID,
	detect: regexp.MustCompile(`<\|open\|>`),
	around: func(tool string) (string, string) {
		return kimi3Tools + kimi3Opens + `tool="` + kimi3Escapes.Replace(tool) + `" index="1"` + kimi3Sep + kimi3Open + `json type="object"` + kimi3Sep,
			kimi3Close + "json" + kimi3Sep + kimi3Close + "call" + kimi3Sep + kimi3Ends
	},
}

const (
	kimi3Open  = "<|open|>"
	kimi3Close = "<|close|>"
	kimi3Sep   = "<|sep|>"
	kimi3Tools = kimi3Open + "tools" + kimi3Sep
	kimi3Ends  = kimi3Close + "tools" + kimi3Sep
	kimi3Opens = kimi3Open + "call "
)

var (
	kimi3Attribute = regexp.MustCompile(`(\w+)="([^"]*)"`)
	kimi3Escapes   = strings.NewReplacer("&", "&amp;", `"`, "&quot;")
	kimi3Unescapes = strings.NewReplacer("&quot;", `"`, "&amp;", "&")
)

// kimi3Markers are the beginnings of calls, and tags of other channels that are no text.
var kimi3Markers = []string{
	kimi3Tools, kimi3Opens,
	kimi3Open + "response" + kimi3Sep, kimi3Close + "response" + kimi3Sep, kimi3Close + "message" + kimi3Sep,
}

func kimi3Text(p *Parser) bool {
	switch p.until(kimi3Markers...) {
	case -1:
		return false
	case 0:
		p.state = kimi3Next
	case 1:
		p.state = kimi3Head
	default:
		p.raw = ""
	}
	return true
}

// kimi3Next expects a call, or the end of the calls.
func kimi3Next(p *Parser) bool {
	p.skipSpace()
	which, w := p.oneOf([]string{kimi3Opens, kimi3Ends})
	switch {
	case w == unsure:
		return false
	case which == 0:
		p.consume(len(kimi3Opens))
		p.state = kimi3Head
		return true
	case which == 1:
		p.raw, p.buf = "", p.buf[len(kimi3Ends):]
	}
	return p.backToText(kimi3Text)
}

// kimi3Head reads the rest of the tag of a call.
func kimi3Head(p *Parser) bool {
	tag, w := p.head(kimi3Sep)
	if w != there {
		return w == differs && p.backToText(kimi3Text)
	}
	name := p.tool(kimi3Attributes(tag)["tool"])
	if name == "" {
		return p.backToText(kimi3Text)
	}
	p.begin(strings.Clone(name))
	p.buf, p.state = p.buf[len(tag)+len(kimi3Sep):], (&kimi3Call{}).between
	return true
}

// kimi3Attributes returns the attributes of a tag.
func kimi3Attributes(tag string) map[string]string {
	attributes := map[string]string{}
	for _, a := range kimi3Attribute.FindAllStringSubmatch(tag, -1) {
		attributes[a[1]] = kimi3Unescapes.Replace(a[2])
	}
	return attributes
}

// A kimi3Call reads the arguments of a call.
type kimi3Call struct {
	begun bool     // the arguments have begun
	whole bool     // one JSON object has all arguments
	end   string   // ends the current value
	value *literal // the current value; nil if it is text
}

// between is the state between arguments. It drops other text up to the end of the call.
func (c *kimi3Call) between(p *Parser) bool {
	at, which := reasoning.FindMarker(p.buf, p.last, kimi3Open, kimi3Close)
	if p.buf = p.buf[at:]; which < 0 {
		return false
	}
	tag, w := p.head(kimi3Sep)
	switch w {
	case unsure:
		return false
	case differs:
		p.buf = p.buf[1:]
		return true
	default:
	}
	p.buf = p.buf[len(tag)+len(kimi3Sep):]
	name, rest, _ := strings.Cut(strings.TrimPrefix(tag, kimi3Open), " ")
	attributes := kimi3Attributes(rest)
	c.end, c.value = kimi3Close+name+kimi3Sep, nil
	switch key := attributes["key"]; {
	case tag == kimi3Close+"call", tag == kimi3Close+"tools":
		c.close(p)
	case which == 0 && name == "json" && !c.begun:
		c.begun, c.whole, c.value = true, true, &literal{}
		p.state = c.within
	case which == 0 && name == "argument" && !c.whole:
		before := ", "
		if !c.begun {
			before, c.begun = "{", true
		}
		before += `"` + escaped(key) + `": `
		if attributes["type"] == "string" {
			before += `"`
		} else {
			c.value = &literal{}
		}
		p.arguments(before)
		p.state = c.within
	}
	return true
}

// close ends the call.
func (c *kimi3Call) close(p *Parser) {
	if !c.begun {
		p.arguments("{")
	}
	if !c.whole {
		p.arguments("}")
	}
	p.complete()
	p.state = kimi3Next
}

// within is the state within a value.
func (c *kimi3Call) within(p *Parser) bool {
	at, which := reasoning.FindMarker(p.buf, p.last, c.end)
	n, closes := at, which >= 0
	if c.value == nil {
		p.arguments(string(appendEscaped(nil, p.buf[:at])))
	} else {
		var s progress
		if n, s = c.value.read(p.buf[:at], closes || p.last); s == bad || closes && s == more {
			c.value.stop()
		}
		p.arguments(c.value.take())
		if s != more || closes {
			p.buf, p.state = p.buf[n:], c.behind
			return true
		}
	}
	if p.buf = p.buf[n:]; !closes {
		return false
	}
	p.arguments(`"`)
	p.state = c.behind
	return true
}

// behind drops what follows a value up to its end.
func (c *kimi3Call) behind(p *Parser) bool {
	at, which := reasoning.FindMarker(p.buf, p.last, c.end)
	if p.buf = p.buf[at:]; which < 0 {
		return false
	}
	p.buf, p.state = p.buf[len(c.end):], c.between
	return true
}
