package toolcall

import (
	"crypto/rand"
	"fmt"
	"strings"
)

// A Format is a way to write calls that models were trained in.
type Format struct {
	Name string
	// Markers may be special tokens of the model; decoding must not leave them out.
	Markers []string
	// Thinks says that the parser gives out what the model thinks, too.
	Thinks bool

	begin  state
	detect []string // all of these are in the chat template of a model that uses it
	around func(tool string) (before, after string)
	id     func() string
}

// The formats there are; where several could be a template's, the first is.
var (
	// Harmony is GPT-OSS's: everything is in channels.
	Harmony = &Format{
		Name: "harmony", Markers: harmonyMarkers, Thinks: true, begin: harmonyBegin, id: longID,
		detect: []string{"<|channel|>"},
	}
	// Hermes is that of NousResearch's models and of Qwen: JSON in tags. Qwen3-Coder has XML in the same tags.
	Hermes = &Format{
		Name: "hermes", Markers: []string{hermesOpen, hermesClose}, begin: hermesText, id: longID,
		detect: []string{hermesOpen},
		around: func(tool string) (string, string) {
			return hermesOpen + "\n{\"name\": \"" + tool + "\", \"arguments\": ", "}\n" + hermesClose
		},
	}
	// Mistral is Mistral's: a list, or names each with its arguments, behind a marker.
	Mistral = &Format{
		Name: "mistral", Markers: []string{mistralOpen, mistralArgs, mistralID}, begin: mistralText, id: shortID,
		detect: []string{mistralOpen},
		around: func(tool string) (string, string) {
			return mistralOpen + "[{\"name\": \"" + tool + "\", \"arguments\": ", "}]"
		},
	}
	// DeepSeek is that of DeepSeek V3 and R1.
	DeepSeek = &Format{
		Name: "deepseek", Markers: []string{deepOpen, deepClose, deepBegin, deepEnd, deepSep}, begin: deepText, id: longID,
		detect: []string{deepOpen},
		around: func(tool string) (string, string) {
			return deepOpen + deepBegin + "function" + deepSep + tool + "\n```json\n", "\n```" + deepEnd + deepClose
		},
	}
	// Llama is that of Llama 3: the answer is JSON.
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

// Around returns the text before and behind the arguments of a call; ok is false where a call has no such form.
func (f *Format) Around(tool string) (before, after string, ok bool) {
	if f.around == nil {
		return "", "", false
	}
	before, after = f.around(tool)
	return before, after, true
}

// NewID returns an id for a call, in the form that the format's templates take back.
func (f *Format) NewID() string { return f.id() }

func longID() string { return "call_" + rand.Text() }

// shortID is for templates that want nine letters and digits.
func shortID() string { return rand.Text()[:9] }
