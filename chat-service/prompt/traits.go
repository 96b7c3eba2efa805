package prompt

import chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"

// Traits are what a chat template does with parts of a conversation that templates treat
// differently. New finds them by rendering small conversations, and Render uses nothing else. Their
// JSON has no zero values.
type Traits struct {
	System, Developer Places   `json:",omitzero"` // where it writes system texts of these roles
	Tools             bool     `json:",omitzero"` // it describes tools that are offered
	Calls             bool     `json:",omitzero"` // it writes calls and their results if tools are offered
	CallsAlone        bool     `json:",omitzero"` // it writes calls and their results if no tools are offered
	Results           bool     `json:",omitzero"` // it writes results of tools without a call
	Form              Form     `json:",omitzero"` // in which it takes values
	IDs               IDs      `json:",omitzero"` // in which it takes the ids of calls
	Text              Texts    `json:",omitzero"` // what becomes of a text beside calls
	ReasonedText      Texts    `json:",omitzero"` // what becomes of a text beside calls and reasoning
	OneCall           bool     `json:",omitzero"` // it takes one call in a turn, so that several become turns of one call and its result
	ChatML            bool     `json:",omitzero"` // it writes turns of ChatML
	Efforts           []string `json:",omitzero"` // the values of reasoning_effort that it takes, the weakest first; nil if it takes any
	Switches          []string `json:",omitzero"` // the variables that turn thinking off
	ImageRoles        []string `json:",omitzero"` // the roles whose turns may have images
	Written           Samples  `json:",omitzero"` // how it writes parts of a conversation
}

// A Form is a form of values that a template takes.
type Form struct {
	TextArguments bool    `json:",omitzero"` // arguments are text, because the template concatenates them
	NoContent     bool    `json:",omitzero"` // the content beside calls is none and not "", because the template writes calls only then
	NoTools       NoTools `json:",omitzero"` // stands for tools if there are none
	Functions     bool    `json:",omitzero"` // tools are the JSON text "functions", and "datetime" is the date, as Firefunction's template has them
	WholeTools    bool    `json:",omitzero"` // every tool has a description and parameters, because the template uses them
	// Reasoning is the field of an assistant's turn that has its reasoning, or reasoningPart, or "" for
	// the default because the template writes no reasoning.
	Reasoning string `json:",omitzero"`
}

// NoTools is what stands for tools if there are none.
type NoTools string

// The values for no tools.
const (
	NullTools      NoTools = ""          // none, as in transformers
	UndefinedTools NoTools = "undefined" // because the template iterates over them, or writes none as a word
	EmptyTools     NoTools = "empty"     // an empty list, because the template writes any other as a word, or fails
)

// IDs is the form in which a template takes ids of calls.
type IDs string

// The forms of ids.
const (
	AnyIDs   IDs = ""
	NineIDs  IDs = "nine"  // nine letters and digits: the template refuses all others
	NamedIDs IDs = "named" // "functions.NAME:NUMBER": the template writes the id and not the name
)

// Texts are what becomes of a text in an assistant's turn with calls.
type Texts struct {
	Latest  Place `json:",omitzero"` // after the last turn of the user
	Earlier Place `json:",omitzero"` // before an answer or a turn of the user
}

// Place is a place of a text.
type Place string

// The places of a text.
const (
	Kept        Place = ""          // it stays, because the template writes it or no place is better
	Before      Place = "turn"      // it is a turn before the calls
	BeforeUser  Place = "user"      // it is a turn before the calls, with an empty turn of the user between, because turns must alternate
	InReasoning Place = "reasoning" // it joins the reasoning
)

// Describe returns the traits for callers.
func (t *Traits) Describe() *chatv1.ChatTemplate {
	return &chatv1.ChatTemplate{
		System: t.System.names(), Developer: t.Developer.names(), Calls: t.Calls, Images: t.ImageRoles,
		Efforts: t.Efforts, LimitsEfforts: t.Efforts != nil, Switches: t.Switches, Tools: t.Tools,
		TextArguments: t.Form.TextArguments, NoContent: t.Form.NoContent, Ids: string(t.IDs), Reasoning: t.Form.Reasoning, OneCall: t.OneCall,
		Text: &chatv1.TextBesideCalls{
			Latest: string(t.Text.Latest), Earlier: string(t.Text.Earlier), Reasoned: string(t.ReasonedText.Latest), EarlierReasoned: string(t.ReasonedText.Earlier),
		},
		WrittenCall: t.Written.Call, WrittenReasoning: t.Written.Reasoning,
	}
}
