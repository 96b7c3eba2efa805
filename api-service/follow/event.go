package follow

import (
	"encoding/json"
	"time"

	"github.com/whence-dev/whence/api-service/openai"
	"github.com/whence-dev/whence/api-service/replay"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// Events returns what the log keeps of an item. Of a stream that says more than one text, apart, it keeps pieces.
func Events(out *chatv1.GenerateResponse, apart bool) []replay.Event {
	switch m := out.GetMessage().(type) {
	case *chatv1.GenerateResponse_Delta:
		if apart {
			return []replay.Event{pieceOf(m.Delta)}
		}
		return []replay.Event{{Kind: replay.Delta, Data: kept(m.Delta)}}
	case *chatv1.GenerateResponse_ChoiceEnd:
		return []replay.Event{{Kind: replay.Delta, Data: piece{Index: m.ChoiceEnd.GetChoice(), Finish: openai.Finish(m.ChoiceEnd.GetFinish())}.kept()}}
	case *chatv1.GenerateResponse_End:
		end := ended{Reason: streamerr.Reason(m.End.GetReason()).String(), Path: m.End.GetPath()}
		if m.End.GetFinish() != llmv1.Finish_FINISH_UNSPECIFIED { // else each choice has said its own
			end.Finish = openai.Finish(m.End.GetFinish())
		}
		return []replay.Event{
			{Kind: replay.Usage, Data: string(openai.Usage(m.End.GetUsage()))},
			{Kind: replay.Ending, Data: string(marshal(end))},
		}
	}
	return nil
}

// Failed is the closing event of a stream that did not complete.
func Failed(err *streamerr.Error) replay.Event {
	return replay.Event{Kind: replay.Failure, Data: string(err.JSON())}
}

type ended struct {
	Reason string   `json:"reason"`
	Finish string   `json:"finish,omitempty"`
	Path   []string `json:"path"`
}

// data is what a reader gets as an event's data: one line of JSON.
func data(e replay.Event) []byte {
	if e.Kind != replay.Delta {
		return []byte(e.Data)
	}
	if pieces, ok := piecesOf(e.Data); ok {
		return marshal(struct {
			Choices []*piece `json:"choices"`
		}{pieces})
	}
	return marshal(joined(e.Data))
}

// A Made is what the client that made a stream is told of it.
type Made struct {
	ID        string    `json:"id"`
	Events    string    `json:"events"`
	ExpiresAt time.Time `json:"expires_at"`
	Token     string    `json:"read_token"`
	Resumable bool      `json:"resumable"`
}

// JSON returns the body.
func (m Made) JSON() []byte {
	m.ExpiresAt = m.ExpiresAt.UTC().Truncate(time.Second)
	return marshal(m)
}

func marshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // plain structs of strings
	}
	return b
}
