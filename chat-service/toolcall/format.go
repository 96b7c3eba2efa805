package toolcall

import (
	"crypto/rand"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// A Format is a way to write tool calls that models were trained on. The file of each family has its
// Format, and formats lists them all.
type Format struct {
	Name string
	// Markers lists texts that may be special tokens of the model. Decoding must keep them.
	Markers []string
	// Thinks means that the parser also separates reasoning.
	Thinks bool
	// Answer is the text that precedes the answer proper. Reasoning and calls stand before it. It is ""
	// if the answer is all that is not marked.
	Answer string
	// Thought has the texts around reasoning in a format that Thinks, and the text between the
	// reasoning and what follows it.
	Thought struct{ Open, Close, Gap string }
	// Lacks describes a format that has no parser; it is "" for a format that has one.
	Lacks string

	begin state
	opens []string // beginnings of calls
	// detect matches a call in this format, and the texts in which chat templates describe the format.
	detect *regexp.Regexp
	// derive returns the format with the tags that only the text shows, or nil; it may be nil.
	derive func(text string) *Format
	around func(tool string) (before, after string)
	id     func() string
}

// formats are all formats, in the order in which Detect tries them: a format whose texts contain the
// texts of another one precedes it. They have parsers.
var formats = []*Format{
	Harmony,
	Muse,
	Kimi,
	Kimi3,
	Gemma,
	FunctionGemma,
	Functionary31,
	Functionary32,
	MistralIDs,
	MistralArgs,
	Mistral,
	DSML,
	GigaChat35,
	DeepSeek,
	MiniMax3,
	MiniMax2,
	Seed,
	Step,
	Solar,
	Solar2,
	MCP,
	Hunyuan,
	GLM,
	LongCat,
	MiniMax1,
	Apriel,
	Apertus,
	Phi,
	Granite,
	FireFunction,
	Cohere,
	CommandR,
	GigaChat,
	Granite20,
	LFM,
	Olmo,
	Inkling,
	PLaMo,
	HyperCLOVA,
	IFM,
	Dots,
	XLAM,
	JSON,
	Pythonic,
	Nemotron,
	InternLM,
	MiniCPM,
	Qwen,
	Hermes,
	Llama,
}

// Named returns the format of this name, or a format that its tags describe.
func Named(name string) (*Format, error) {
	if strings.Contains(name, " ") {
		return custom(name)
	}
	for _, f := range formats {
		if f.Name == name {
			return f, nil
		}
	}
	return nil, fmt.Errorf("there is no format %.64q; there are %s, and json or xml with the texts around calls, such as %q", name, strings.Join(Names(), ", "), "json <call> </call>")
}

// Names returns the names of the formats.
func Names() (names []string) {
	for _, f := range formats {
		names = append(names, f.Name)
	}
	return names
}

// maxTag bounds the tags of a custom format, in bytes.
const maxTag = 64

// custom returns a format that an operator describes: "json" or "xml", and the texts that begin and
// end calls.
func custom(text string) (*Format, error) {
	words := strings.Fields(text)
	if len(words) != 3 || words[0] != "json" && words[0] != "xml" || words[1] == words[2] {
		return nil, fmt.Errorf("the format %.200q must be json or xml, and two different texts that begin and end calls, with spaces between the three", text)
	}
	if len(words[1]) > maxTag || len(words[2]) > maxTag {
		return nil, fmt.Errorf("the texts around calls must have at most %d bytes", maxTag)
	}
	t := tags{open: words[1:2], close: words[2:3]}
	if words[0] == "xml" {
		t.xml, t.keys = xmlOf("function", "parameter", "invoke"), keysOf("")
	}
	return tagged(strings.Join(words, " "), "^$", t, nil), nil
}

// Detect returns the format in which a model writes calls, or nil. The texts say how, the most
// certain first: a call that the chat template has rendered, the tools that it has rendered, and its
// source. The first text that matches any format decides.
func Detect(texts ...string) *Format {
	for _, text := range texts {
		for _, f := range slices.Concat(formats, lacking) {
			if !f.detect.MatchString(text) {
				continue
			}
			if f.derive != nil {
				if derived := f.derive(text); derived != nil {
					return derived
				}
			}
			return f
		}
		if f := derived(text); f != nil {
			return f
		}
	}
	return nil
}

// Around returns the text before and after the arguments of a call.
func (f *Format) Around(tool string) (before, after string) { return f.around(tool) }

// NewID returns an id for a call that the format's templates accept.
func (f *Format) NewID() string { return f.id() }

func longID() string { return "call_" + rand.Text() }

// shortID returns an id for templates that require nine letters and digits.
func shortID() string { return rand.Text()[:9] }
