package follow

import (
	"cmp"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/whence-dev/whence/api-service/jsontext"
	"github.com/whence-dev/whence/api-service/openai"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
)

// A piece is the data of a delta that names its choice.
type piece struct {
	Index uint32 `json:"index"`
	part
	Logprobs []openai.TokenLogprob `json:"logprobs,omitempty"`
	Finish   string                `json:"finish,omitempty"` // the finish reason of the choice, in its last piece
	Model    string                `json:"model,omitempty"`  // in the first piece of a generation, if the stream has a memo
}

// mark is the byte before a piece in the log. No text contains it.
const mark = "\xff"

// appendPiece appends a piece in the form that the log stores.
func appendPiece(b []byte, p *part, choice uint32, tokens []*chatv1.TokenLogprob, finish string) []byte {
	b = append(append(b, mark...), `{"index":`...)
	b = append(strconv.AppendUint(b, uint64(choice), 10), ',')
	b = p.appendMembers(b)
	if likely := openai.NewLogprobs(tokens); likely != nil {
		b = append(append(b, `,"logprobs":`...), marshal(likely.Content)...)
	}
	if finish != "" {
		b = jsontext.String(append(b, `,"finish":`...), finish)
	}
	return append(b, '}')
}

// appendStart appends the piece that begins a generation of a stream with a memo.
func appendStart(b []byte, model string) []byte {
	return append(append(b, mark...), marshal(piece{Model: model})...)
}

// appendPieces appends the JSON object of pieces that the log has merged: one piece for each
// choice, in the order in which the choices first appear.
func appendPieces(b []byte, data string) []byte {
	b = append(b, `{"choices":[`...)
	rest := data[len(mark):]
	if !strings.Contains(rest, mark) { // a single piece
		b = append(b, rest...)
	} else {
		for i, p := range joinPieces(rest) {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(b, marshal(p)...)
		}
	}
	return append(b, ']', '}')
}

// joinPieces joins the pieces of each choice.
func joinPieces(data string) (pieces []*piece) {
	known := map[uint32]*piece{}
	for one := range strings.SplitSeq(data, mark) {
		var next piece
		if json.Unmarshal([]byte(one), &next) != nil {
			continue // cannot happen: a Recorder has written the piece
		}
		p := known[next.Index]
		if p == nil {
			known[next.Index] = &next
			pieces = append(pieces, &next)
			continue
		}
		p.add(next.part) // replay.MaxMerged bounds the length
		p.Logprobs = append(p.Logprobs, next.Logprobs...)
		p.Finish, p.Model = next.Finish, cmp.Or(p.Model, next.Model)
	}
	return pieces
}
