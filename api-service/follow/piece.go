package follow

import (
	"encoding/json"
	"strings"

	"github.com/whence-dev/whence/api-service/openai"
	"github.com/whence-dev/whence/api-service/replay"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
)

// A piece is what is new of one choice.
type piece struct {
	Index uint32 `json:"index"`
	part
	Logprobs []openai.TokenLogprob `json:"logprobs,omitempty"`
	Finish   string                `json:"finish,omitempty"` // why the choice is complete, in its last piece
}

// mark begins a piece in the log, where pieces are joined as texts are: a byte that is in no text.
const mark = "\xff"

func (p piece) kept() string { return mark + string(marshal(p)) }

func pieceOf(d *chatv1.Delta) replay.Event {
	p := piece{Index: d.GetChoice(), part: partOf(d)}
	if likely := openai.NewLogprobs(d.GetLogprobs()); likely != nil {
		p.Logprobs = likely.Content
	}
	return replay.Event{Kind: replay.Delta, Data: p.kept()}
}

// piecesOf reads pieces that the log has joined, and makes one of those of a choice; ok is false if the data is text.
func piecesOf(data string) (pieces []*piece, ok bool) {
	rest, ok := strings.CutPrefix(data, mark)
	if !ok {
		return nil, false
	}
	known := map[uint32]*piece{}
	for one := range strings.SplitSeq(rest, mark) {
		var next piece
		if json.Unmarshal([]byte(one), &next) != nil {
			continue // nobody writes such: what is in the log is ours
		}
		p := known[next.Index]
		if p == nil {
			known[next.Index] = &next
			pieces = append(pieces, &next)
			continue
		}
		p.add(next.part) // few: an event is bounded
		p.Logprobs = append(p.Logprobs, next.Logprobs...)
		p.Finish = next.Finish
	}
	return pieces, true
}
