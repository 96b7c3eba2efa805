package toolcall

import (
	"crypto/rand"
	"fmt"
	"strings"
)

// A Format is a way to write tool calls that models were trained on.
type Format struct {
	Name string
	// Markers lists texts that may be special tokens of the model. Decoding must keep them.
	Markers []string
	// Thinks means that the parser also separates reasoning.
	Thinks bool
	// Answer is the text that precedes the answer proper. Reasoning and calls stand before it. It is ""
	// if the answer is all that is not marked.
	Answer string

	begin  state
	detect []string // texts that the chat template of a model with this format contains, all of them
	around func(tool string) (before, after string)
	id     func() string
}

// The formats. Detect returns the first that fits a template.
var (
	// Harmony is the format of GPT-OSS: the whole answer consists of channels.
	Harmony = &Format{
		Name: "harmony", Markers: harmonyMarkers, Thinks: true, begin: harmonyBegin, id: longID,
		Answer: harmonyChannel + "final" + harmonyMessage,
		detect: []string{"<|channel|>"},
		around: func(tool string) (string, string) {
			return " to=" + harmonyTools + tool + harmonyChannel + "commentary json" + harmonyMessage, "<|call|>"
		},
	}
	// Hermes is the format of NousResearch's models and of Qwen: JSON in tags. Qwen3-Coder writes
	// XML in the same tags.
	Hermes = &Format{
		Name: "hermes", Markers: []string{hermesOpen, hermesClose}, begin: hermesText, id: longID,
		detect: []string{hermesOpen},
		around: func(tool string) (string, string) {
			return hermesOpen + "\n{\"name\": \"" + tool + "\", \"arguments\": ", "}\n" + hermesClose
		},
	}
	// Mistral is the format of Mistral's models: a list, or names with arguments, after a marker.
	Mistral = &Format{
		Name: "mistral", Markers: []string{mistralOpen, mistralArgs, mistralID}, begin: mistralText, id: shortID,
		detect: []string{mistralOpen},
		around: func(tool string) (string, string) {
			return mistralOpen + "[{\"name\": \"" + tool + "\", \"arguments\": ", "}]"
		},
	}
	// DeepSeek is the format of DeepSeek V3 and R1.
	DeepSeek = &Format{
		Name: "deepseek", Markers: []string{deepOpen, deepClose, deepBegin, deepEnd, deepSep}, begin: deepText, id: longID,
		detect: []string{deepOpen},
		around: func(tool string) (string, string) {
			return deepOpen + deepBegin + "function" + deepSep + tool + "\n```json\n", "\n```" + deepEnd + deepClose
		},
	}
	// Llama is the format of Llama 3: the answer is JSON.
	Llama = &Format{
		Name: "llama", Markers: []string{llamaTag}, begin: llamaBegin, id: longID,
		detect: []string{"ipython", `"parameters": `},
		around: func(tool string) (string, string) { return `{"name": "` + tool + `", "parameters": `, "}" },
	}
)

var formats = []*Format{Harmony, Hermes, Mistral, DeepSeek, Llama}

// Named returns the format of this name.
func Named(name string) (*Format, error) {
	names := make([]string, len(formats))
	for i, f := range formats {
		if f.Name == name {
			return f, nil
		}
		names[i] = f.Name
	}
	return nil, fmt.Errorf("there is no format %.64q; there are %s", name, strings.Join(names, ", "))
}

// Detect returns the format in which a chat template writes calls, or nil.
func Detect(template string) *Format {
next:
	for _, f := range formats {
		for _, mark := range f.detect {
			if !strings.Contains(template, mark) {
				continue next
			}
		}
		return f
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
