package prompt

import chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"

// Traits are what a chat template does with parts of a conversation that templates treat
// differently. New finds them by rendering small conversations, and Render uses nothing else.
type Traits struct {
	System, Developer Places   // where it writes system texts of these roles
	Tools             bool     // it describes tools that are offered
	Calls             bool     // it writes calls and their results if tools are offered
	CallsAlone        bool     // it writes calls and their results if no tools are offered
	Results           bool     // it writes results of tools without a call
	Form              Form     // in which it takes values
	IDs               IDs      // in which it takes the ids of calls
	Text              Texts    // what becomes of a text beside calls
	ReasonedText      Texts    // what becomes of a text beside calls and reasoning
	OneCall           bool     // it takes one call in a turn, so that several become turns of one call and its result
	ChatML            bool     // it writes turns of ChatML
	Efforts           []string // the values of reasoning_effort that it takes, the weakest first; nil if it takes any
	Switches          []string // the variables that turn thinking off
	ImageRoles        []string // the roles whose turns may have images
	Written           Samples  // how it writes parts of a conversation
}

// A Form is a form of values that a template takes.
type Form struct {
	TextArguments bool // arguments are text, because the template concatenates them
	NoContent     bool // the content beside calls is none and not "", because the template writes calls only then
	NoTools       bool // tools are undefined and not none if there are none, because the template iterates over them
	WholeTools    bool // every tool has a description and parameters, because the template uses them
	// Reasoning is the field of an assistant's turn that has its reasoning, or reasoningPart, or "" for
	// the default because the template writes no reasoning.
	Reasoning string
}

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
	Latest  Place // after the last turn of the user
	Earlier Place // before an answer or a turn of the user
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
		Efforts: t.Efforts, LimitsEfforts: t.Efforts != nil, Switches: t.Switches,
	}
}
