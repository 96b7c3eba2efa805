package responses

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/whence-dev/whence/api-service/call"
	"github.com/whence-dev/whence/api-service/image"
	"github.com/whence-dev/whence/api-service/responses/conversation"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// IDPrefix begins the ids of responses. The id of the stream follows.
const IDPrefix = "resp_"

// storage is the part of a body that decides whether and how the response is stored.
type storage struct {
	stores   bool              // the value of a missing store
	store    *bool             // nil if the field is missing
	previous string            // the id of the response that this response continues
	input    json.RawMessage   // the field; nil once it is no longer needed
	earlier  []json.RawMessage // the conversation up to the previous response
}

// decideStorage checks and completes the fields about storage. A background response is stored.
func (r *body) decideStorage() error {
	stored := r.stores || r.settings.Background
	if r.store != nil {
		stored = *r.store
	}
	if r.compacts || r.counts {
		return nil
	}
	if r.settings.Background && !stored {
		return streamerr.InvalidParam("background", "background needs store: true, because later requests read the response").WithCode(streamerr.CodeUnsupportedValue)
	}
	if stored {
		r.memo = &Memo{Background: r.settings.Background, Encrypts: r.encrypts, Functions: r.functions}
	} else if !r.continues() {
		r.input = nil
	}
	return nil
}

// continues reports that the request refers to an earlier response, or to items of one.
func (r *body) continues() bool { return r.previous != "" || len(r.references) > 0 }

// follow makes the request continue a conversation, and puts the items that were found in the place
// of references. The instructions of the earlier requests are not part of the conversation.
func (r *body) follow(earlier []json.RawMessage, found map[string]json.RawMessage) (images []image.Source, err error) {
	if r.input == nil {
		r.input = json.RawMessage("[]")
	}
	r.input = conversation.Resolve(r.input, found)
	c, err := conversation.ParseAfter(r.in, earlier, "previous_response_id", "input", r.input)
	if err != nil {
		return nil, err
	}
	r.converse(c)
	if !r.compacts {
		if err := r.offer(r.offers); err != nil {
			return nil, err
		}
	}
	if r.memo != nil || r.compacts {
		r.earlier = earlier
	} else {
		r.input = nil
	}
	r.instruct()
	return c.Images, nil
}

// kept returns how the response is stored, or nil if it is not stored.
func (r *body) kept() *call.Storage {
	if r.memo == nil {
		return nil
	}
	return &call.Storage{
		Background: r.memo.Background, Optional: r.store == nil && !r.memo.Background, Memo: r.encodeMemo,
		Items: r.encoder.merged, Drop: func() {
			r.memo, r.earlier, r.input = nil, nil, nil
			r.encoder.stores = false
		},
	}
}

// encodeMemo returns the memo of the request. It is called once.
func (r *body) encodeMemo(began time.Time) string {
	m := r.memo
	m.Model, m.Tier = r.request.GetModel(), r.request.GetClaim().GetTier()
	m.Settings = append([]byte{'{'}, append(r.repeated[1:len(r.repeated):len(r.repeated)], '}')...)
	m.Input = slices.Concat(r.earlier, conversation.Items(r.input))
	r.encoder.created = began.Unix()
	r.memo, r.earlier, r.input = nil, nil, nil
	return string(marshal(m))
}

// A Memo is the data that is needed besides the items of its stream to replay a stored response.
type Memo struct {
	Model      string              `json:"model"`
	Background bool                `json:"background,omitempty"`
	Tier       llmv1.Tier          `json:"tier,omitempty"`
	Encrypts   bool                `json:"encrypts,omitempty"`
	Functions  map[string]function `json:"functions,omitempty"`
	// Settings are the fields of the request that the response repeats, as an object.
	Settings json.RawMessage `json:"settings"`
	// Input has the items of the conversation that the response answers, without instructions.
	Input []json.RawMessage `json:"input"`
}

// ParseMemo parses a memo.
func ParseMemo(text string) (*Memo, error) {
	m := &Memo{}
	if err := json.Unmarshal([]byte(text), m); err != nil {
		return nil, err
	}
	return m, nil
}

// Encoder returns an encoder of the response to the stream with this id, which began at began. It
// leaves out the events with a number below from. endedAt is called once the stream has ended.
func (m *Memo) Encoder(id string, began time.Time, from int64, endedAt func() time.Time) *Encoder {
	e := &Encoder{
		output:  output{stream: id, encrypts: m.Encrypts, functions: m.Functions},
		request: &chatv1.ChatRequest{Claim: &llmv1.Claim{Tier: m.Tier}}, repeated: m.members(),
		model: m.Model, stores: true, created: began.Unix(), status: queued, endedAt: endedAt, from: from,
	}
	e.to = e
	return e
}

// members returns the settings as members of an object, each with a comma before it.
func (m *Memo) members() []byte {
	b := slices.Clone(m.Settings)
	b[0] = ','
	return b[:len(b)-1]
}
