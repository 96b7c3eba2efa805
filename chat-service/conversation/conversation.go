// Package conversation decides how a request of several messages is answered: each turn of a
// conversation gets an answer, and the pieces of a composition become one request.
//
// A Machine is the state of one conversation. It is pure: Step takes an event and returns actions.
// The caller of Step asks the pipeline for answers, receives the client's messages and delivers the
// answers. A Composition is pure, too: it takes one piece after another. The stories in testdata
// are scripts of events with the resulting actions.
package conversation

import (
	"google.golang.org/protobuf/proto"

	"github.com/whence-dev/whence/chat-service/choices"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/internal/answer"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// MaxBytes bounds all messages of a conversation or a composition together, as the size of a single
// request is bounded. The context of the model is not a bound, because templates may leave out
// messages.
const MaxBytes = 4 << 20

// A Kind is the kind of an event.
type Kind uint8

// The events.
const (
	Begin Kind = iota // the first message has arrived
	Item              // the requested answer has a message, Item
	Over              // the answer is over, and its stream is released
	Turn              // the caller has sent Turn
	Close             // the caller has no more turns
	Fail              // the answer, or the wait for the caller, has failed with Err
)

// An Event concerns a conversation.
type Event struct {
	Kind Kind
	Item *chatv1.GenerateResponse
	Turn *chatv1.ConverseRequest
	Err  error
}

// A Verb is the kind of an action.
type Verb uint8

// The actions. All but Deliver are the last action of their step. The conversation is over after
// End, Refuse and Break.
const (
	Deliver Verb = iota // pass Message on
	Ask                 // have Request answered
	Await               // wait for the caller's next message
	End                 // pass Message on, which is the ending
	Refuse              // end the conversation with Err
	Break               // end the conversation without an ending, because the pipeline's answer had none
)

// An Action is an instruction for the caller of Step.
type Action struct {
	Verb    Verb
	Message *chatv1.ConverseResponse
	Request *chatv1.ChatRequest // valid until the next Step
	Err     error
}

type phase uint8

const (
	answering phase = iota // an answer was requested
	answered               // the End of the answer has arrived, but its stream is not released yet
	waiting                // for the caller's next turn
	over
)

// A Machine is the state of one conversation. The conversation ends with the ending of the first
// turn that does not complete; with INVALID if a message is not a turn or is too long; or, when the
// caller has no more turns, with the ending of the last answer.
type Machine struct {
	phase  phase
	req    *chatv1.ChatRequest // all messages so far
	size   int                 // of req, in bytes
	answer answer.Answer       // the running answer; the model's context bounds it
	turns  uint32
	end    *llmv1.End // of the last answer
	used   llmv1.Usage
	out    []Action
	first  [2]Action // storage of out: no step has more actions
}

// New returns the machine of a conversation that begins with a request. It does not modify the
// request.
func New(first *chatv1.ChatRequest) *Machine {
	m := &Machine{req: proto.CloneOf(first), size: proto.Size(first)}
	m.req.Gathered = false // the caller gets each delta
	return m
}

// Step takes an event and returns the actions to execute, in order. The slice is valid until the
// next Step.
func (m *Machine) Step(e Event) []Action {
	m.out = m.first[:0]
	switch {
	case m.phase == over:
	case e.Kind == Fail:
		m.refuse(e.Err)
	case e.Kind == Begin:
		m.begin()
	case e.Kind == Item && m.phase == answering:
		m.item(e.Item)
	case e.Kind == Over && m.phase == answering:
		m.phase = over
		m.do(Action{Verb: Break})
	case e.Kind == Over && m.phase == answered:
		m.endTurn()
	case e.Kind == Turn && m.phase == waiting:
		m.turn(e.Turn)
	case e.Kind == Close && m.phase == waiting:
		m.close()
	}
	return m.out
}

func (m *Machine) do(a Action) { m.out = append(m.out, a) }

func (m *Machine) begin() {
	if choices.Count(m.req) > 1 || len(m.req.GetPrompts()) > 0 {
		m.refuse(streamerr.InvalidParam("n", "a conversation has one answer for each turn, and messages instead of prompts"))
		return
	}
	m.ask()
}

func (m *Machine) ask() {
	m.phase, m.answer = answering, answer.Answer{}
	m.do(Action{Verb: Ask, Request: m.req})
}

func (m *Machine) refuse(err error) {
	m.phase = over
	m.do(Action{Verb: Refuse, Err: err})
}

// item passes on a message of the running answer, except for its End: the turn is over only when
// the stream of the answer is released.
func (m *Machine) item(out *chatv1.GenerateResponse) {
	resp := &chatv1.ConverseResponse{}
	switch message := out.GetMessage().(type) {
	case *chatv1.GenerateResponse_Started:
		resp.Message = &chatv1.ConverseResponse_Started{Started: message.Started}
	case *chatv1.GenerateResponse_Delta:
		m.answer.Add(message.Delta)
		resp.Message = &chatv1.ConverseResponse_Delta{Delta: message.Delta}
	case *chatv1.GenerateResponse_End:
		m.phase, m.end = answered, message.End
		return
	}
	m.do(Action{Verb: Deliver, Message: resp})
}

// endTurn adds the answer to the conversation, and ends the turn.
func (m *Machine) endTurn() {
	m.phase = waiting
	m.turns++
	usage := m.end.GetUsage()
	m.used.PromptTokens += usage.GetPromptTokens()
	m.used.CompletionTokens += usage.GetCompletionTokens()
	m.used.Estimated = m.used.GetEstimated() || usage.GetEstimated()
	if usage != nil && usage.CachedTokens != nil {
		m.used.CachedTokens = new(m.used.GetCachedTokens() + *usage.CachedTokens)
	}
	if usage != nil && usage.ReasoningTokens != nil {
		m.used.ReasoningTokens = new(m.used.GetReasoningTokens() + *usage.ReasoningTokens)
	}
	message := &chatv1.Message{Role: "assistant", Content: m.answer.Text(), Reasoning: m.answer.Reasoning(), ToolCalls: m.answer.Calls()}
	m.size += proto.Size(message)
	m.req.Messages = append(m.req.Messages, message)
	m.do(Action{Verb: Deliver, Message: &chatv1.ConverseResponse{Message: &chatv1.ConverseResponse_TurnEnd{TurnEnd: &chatv1.TurnEnd{
		Turn: m.turns, Finish: m.end.GetFinish(), MatchedStop: m.end.GetMatchedStop(), Usage: usage, Tokens: m.end.GetTokens(),
	}}}})
	m.do(Action{Verb: Await})
}

// turn adds the messages of a turn and asks for an answer.
func (m *Machine) turn(in *chatv1.ConverseRequest) {
	m.size += proto.Size(in)
	switch {
	case in.GetTurn() == nil:
		m.refuse(streamerr.New(streamerr.Invalid, "only the first message may be a request; later ones are turns"))
	case len(in.GetTurn().GetMessages()) == 0:
		m.refuse(streamerr.InvalidParam("turn.messages", "the turn has no messages"))
	case m.size > MaxBytes:
		m.refuse(streamerr.InvalidParam("turn.messages", "with this turn the conversation is longer than %d bytes", MaxBytes))
	default:
		m.req.Messages = append(m.req.Messages, in.GetTurn().GetMessages()...)
		m.req.Answered = nil // it was the beginning of the first answer
		m.ask()
	}
}

// close ends the conversation like its last answer, with the usage of all answers.
func (m *Machine) close() {
	m.phase = over
	m.end.Usage, m.end.Tokens = &m.used, 0 // the TurnEnd has counted the tokens
	m.do(Action{Verb: End, Message: &chatv1.ConverseResponse{Message: &chatv1.ConverseResponse_End{End: m.end}}})
}
