package follow

import (
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/whence-dev/whence/api-service/openai"
	"github.com/whence-dev/whence/api-service/replay"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A Decoder decodes the log of a stream with a memo into the items that the Recorder recorded. A
// piece of the log decodes to the same item, however the log has merged the pieces. The zero value
// is for the beginning of the log.
type Decoder struct {
	usage *llmv1.Usage
}

// A Visitor receives the items of a log, in order.
type Visitor struct {
	Item func(*chatv1.GenerateResponse)
	// Ended is called before the item with the End, with the time of the End.
	Ended  func(at time.Time)
	Failed func(*streamerr.Error)
}

// errForm reports an event that the Recorder of a stream with a memo cannot have written.
var errForm = errors.New("follow: an event of the stream cannot be read")

// Decode passes the items in an event to v.
func (d *Decoder) Decode(e replay.Event, v Visitor) (err error) {
	switch e.Kind {
	case replay.Delta:
		return decodePieces(e.Data, v.Item)
	case replay.Usage:
		d.usage, err = openai.ParseUsage([]byte(e.Data))
		return err
	case replay.Ending:
		var end ending
		if err := json.Unmarshal([]byte(e.Data), &end); err != nil {
			return err
		}
		v.Ended(time.Unix(end.At, 0))
		v.Item(&chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_End{End: &llmv1.End{
			Reason: streamv1.Reason(streamerr.ParseReason(end.Reason)), Path: end.Path, Finish: openai.ParseFinish(end.Finish), Usage: d.usage,
		}}})
		return nil
	case replay.Failure:
		failure, ok := streamerr.ParseJSON([]byte(e.Data))
		if !ok {
			return errForm
		}
		if implied := failure.WithCode(""); implied.APICode() == failure.Code {
			failure = implied // the error object has a code for every error
		}
		v.Failed(failure)
		return nil
	default:
		return errForm
	}
}

// decodePieces passes to item the items of pieces, which the log may have merged.
func decodePieces(data string, item func(*chatv1.GenerateResponse)) error {
	rest, marked := strings.CutPrefix(data, mark)
	if !marked {
		return errForm
	}
	for one := range strings.SplitSeq(rest, mark) {
		var p piece
		if err := json.Unmarshal([]byte(one), &p); err != nil {
			return err
		}
		if p.Model != "" {
			item(&chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_Started{Started: &llmv1.Started{Model: p.Model}}})
			continue
		}
		item(&chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_Delta{Delta: p.delta()}})
	}
	return nil
}

// delta returns the delta that a Recorder encodes as the piece.
func (p *piece) delta() *chatv1.Delta {
	d := &chatv1.Delta{Choice: p.Index, Text: p.Text, Reasoning: p.Reasoning, Logprobs: openai.ParseLogprobs(p.Logprobs)}
	for _, c := range p.Calls {
		d.ToolCalls = append(d.ToolCalls, &chatv1.ToolCallDelta{Index: c.Index, Id: c.ID, Name: c.Name, Arguments: c.Arguments})
	}
	return d
}
