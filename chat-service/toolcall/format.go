package toolcall

import (
	"crypto/rand"
	"fmt"
	"regexp"
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
	// Lacks says what is known of a format that has no parser. It is "" for all others.
	Lacks string

	begin state
	// detect matches a call in this format, and the texts in which chat templates describe the format.
	detect *regexp.Regexp
	// derive returns the format with the tags that only the text shows, or nil; it may be nil.
	derive func(text string) *Format
	around func(tool string) (before, after string)
	id     func() string
}

// formats are all formats, in the order in which Detect tries them: a format whose texts contain the
// texts of another one precedes it.
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

// Named returns the format of this name, which has a parser.
func Named(name string) (*Format, error) {
	var names []string
	for _, f := range formats {
		switch {
		case f.Lacks != "":
		case f.Name == name:
			return f, nil
		default:
			names = append(names, f.Name)
		}
	}
	return nil, fmt.Errorf("there is no format %.64q; there are %s", name, strings.Join(names, ", "))
}

// Detect returns the format in which a model writes calls, or nil. The texts say how, the most
// certain first: a call that the chat template has rendered, the tools that it has rendered, and its
// source. The first text that matches any format decides.
func Detect(texts ...string) *Format {
	for _, text := range texts {
		for _, f := range formats {
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
