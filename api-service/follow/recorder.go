package follow

import (
	"time"

	"github.com/whence-dev/whence/api-service/jsontext"
	"github.com/whence-dev/whence/api-service/openai"
	"github.com/whence-dev/whence/api-service/position"
	"github.com/whence-dev/whence/api-service/replay"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A Recorder encodes the items of one stream and appends them to the replay log. An item with only
// text costs no allocation. One goroutine uses a Recorder.
type Recorder struct {
	log     *replay.Writer
	apart   bool
	notes   bool
	whole   bool // a Decoder can decode the items
	started bool
	endedAt func() time.Time
	part    part   // reused
	buf     []byte // reused
	note    []byte // reused
}

// NewRecorder returns the recorder of a stream. If apart is true, each delta names its choice
// (call.NamesChoices). If the head of the stream has a form, each delta gets a note (package
// position), so that another instance can continue the stream. If the head has a memo, a Decoder
// can decode the log: each delta is a piece of its own, each generation begins with a piece that
// has the model, and the closing event has the time that endedAt returns. A nil endedAt means
// time.Now.
func NewRecorder(log *replay.Writer, apart bool, endedAt func() time.Time) *Recorder {
	whole := log.Head().Memo != ""
	if endedAt == nil {
		endedAt = time.Now
	}
	return &Recorder{log: log, apart: apart || whole, notes: log.Head().Form != "", whole: whole, endedAt: endedAt}
}

// Record appends an item. It returns the number of bytes added to the log, which is 0 for items
// that readers do not get. Its errors are those of replay.Writer.
func (r *Recorder) Record(out *chatv1.GenerateResponse) (bytes int, err error) {
	switch m := out.GetMessage().(type) {
	case *chatv1.GenerateResponse_Started:
		if !r.whole || r.started {
			return 0, nil
		}
		r.started = true
		r.buf = appendStart(r.buf[:0], m.Started.GetModel())
	case *chatv1.GenerateResponse_Delta:
		if r.apart {
			r.buf = appendPiece(r.buf[:0], r.partOf(m.Delta), m.Delta.GetChoice(), m.Delta.GetLogprobs(), "")
		} else {
			r.buf = r.appendDelta(r.buf[:0], m.Delta)
		}
	case *chatv1.GenerateResponse_ChoiceEnd:
		r.part = part{}
		r.buf = appendPiece(r.buf[:0], &r.part, m.ChoiceEnd.GetChoice(), nil, openai.Finish(m.ChoiceEnd.GetFinish()))
	case *chatv1.GenerateResponse_End:
		return r.end(m.End)
	default:
		return 0, nil
	}
	if r.notes {
		r.note = position.AppendNote(r.note[:0], out)
	}
	return len(r.buf), r.log.Delta(r.buf, r.note)
}

// Fail appends the closing event of a stream that did not complete.
func (r *Recorder) Fail(err *streamerr.Error) error { return r.log.Append(Failed(err)) }

// Failed returns the closing event of a stream that did not complete.
func Failed(err *streamerr.Error) replay.Event {
	return replay.Event{Kind: replay.Failure, Data: string(err.JSON())}
}

// An ending is the data of the closing event of a stream that completed.
type ending struct {
	Reason string   `json:"reason"`
	Finish string   `json:"finish,omitempty"`
	Path   []string `json:"path"`
	At     int64    `json:"ended_at,omitempty"` // seconds since 1970, if the stream has a memo
}

// Completed returns the data of the closing event of a stream that completed:
// {"reason","finish","path"} in one line.
func Completed(m *llmv1.End) []byte { return marshal(endingOf(m)) }

func endingOf(m *llmv1.End) ending {
	e := ending{Reason: streamerr.Reason(m.GetReason()).String(), Path: m.GetPath()}
	if m.GetFinish() != llmv1.Finish_FINISH_UNSPECIFIED { // otherwise each choice has its own finish reason
		e.Finish = openai.Finish(m.GetFinish())
	}
	return e
}

func (r *Recorder) end(m *llmv1.End) (bytes int, err error) {
	e := endingOf(m)
	if r.whole {
		e.At = r.endedAt().Unix()
	}
	usage, closing := string(openai.Usage(m.GetUsage())), string(marshal(e))
	return len(usage) + len(closing), r.log.Append(
		replay.Event{Kind: replay.Usage, Data: usage},
		replay.Event{Kind: replay.Ending, Data: closing},
	)
}

// appendDelta appends a delta of a stream with a single text, in the form that the log stores.
func (r *Recorder) appendDelta(b []byte, d *chatv1.Delta) []byte {
	if d.GetReasoning() == "" && len(d.GetToolCalls()) == 0 {
		return jsontext.Text(b, d.GetText())
	}
	b = append(b, fence, '{')
	b = r.partOf(d).appendMembers(b)
	return append(b, '}', fence)
}

// partOf returns the part of a delta. It is valid until the next call.
func (r *Recorder) partOf(d *chatv1.Delta) *part {
	r.part = part{Text: d.GetText(), Reasoning: d.GetReasoning(), Calls: r.part.Calls[:0]}
	for _, c := range d.GetToolCalls() {
		r.part.Calls = append(r.part.Calls, callPart{c.GetIndex(), c.GetId(), c.GetName(), c.GetArguments()})
	}
	return &r.part
}
