// Package story is the JSON of /v1/streams and /v1/workers: the history of a stream, hop by hop,
// for programs and for people; and the state of the workers.
package story

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/whence-dev/whence/api-service/strict"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/internal/printable"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A Story is the records of one stream, from all hops of its path.
type Story struct {
	ID      string   `json:"id"`
	State   string   `json:"state"` // "live", "stopped" or "ended"
	Reason  string   `json:"reason,omitempty"`
	Origin  string   `json:"origin,omitempty"`
	Path    []string `json:"path,omitempty"`
	Message string   `json:"message,omitempty"`
	Model   string   `json:"model,omitempty"`
	Workers []string `json:"workers,omitempty"` // that have answered, first to last, as far as the first hop knows
	Tokens  Tokens   `json:"tokens"`
	Hops    []Hop    `json:"hops"`
	// Delivery is present once the client has reported how the stream arrived.
	Delivery *Delivery `json:"delivery,omitempty"`
	// Extent is present if the client has left: "nothing", "part", "tool_call" or "answer".
	Extent string `json:"extent,omitempty"`
}

// Tokens are the figures of the stream, as ledger.Tokens defines them.
type Tokens struct {
	Prompt    uint32 `json:"prompt"`
	Generated uint32 `json:"generated"`
	Delivered uint32 `json:"delivered"`
	Wasted    uint32 `json:"wasted"`
	// Cached is absent until an answer is complete.
	Cached *uint32 `json:"cached,omitempty"`
}

func tokens(r *streamv1.Record) Tokens {
	t := ledger.TokensOf(r)
	return Tokens{Prompt: t.Prompt, Generated: t.Generated, Delivered: t.Delivered, Wasted: t.Wasted(), Cached: t.Cached}
}

// A Hop is one hop's part. Times are from the hop's own clock.
type Hop struct {
	Hop     string   `json:"hop"`
	Stream  string   `json:"stream,omitempty"` // the stream's id on this hop, if the hop ran it as one of several streams
	State   string   `json:"state"`
	Peer    string   `json:"peer,omitempty"`
	Reason  string   `json:"reason,omitempty"`
	Path    []string `json:"path,omitempty"`
	Message string   `json:"message,omitempty"`
	Began   string   `json:"began"` // RFC 3339, UTC
	TookMS  float64  `json:"took_ms"`
	// StopHeardMS is the time from Began until the hop received the stop; StopConfirmedMS is the
	// time from then until the hop below had stopped. Null if that did not happen.
	StopHeardMS     *float64 `json:"stop_heard_ms"`
	StopConfirmedMS *float64 `json:"stop_confirmed_ms"`
	// FirstTokenMS is the time from Began until the hop sent the first token, PerTokenMS the mean
	// time per token after that, and LongestGapMS the longest time between two messages with tokens.
	// Null if there was none, and on hops that time no messages (--trace off).
	FirstTokenMS *float64 `json:"first_token_ms"`
	PerTokenMS   *float64 `json:"per_token_ms"`
	LongestGapMS *float64 `json:"longest_gap_ms"`
	TokensIn     uint32   `json:"tokens_in"`
	TokensOut    uint32   `json:"tokens_out"`
	// ReceivedPace and SentPace are absent before the first token.
	ReceivedPace *TokenPace `json:"received_pace,omitempty"`
	SentPace     *TokenPace `json:"sent_pace,omitempty"`
	Moves        []Move     `json:"moves,omitempty"`
	// Handovers are present if one worker was to read the prompt for another.
	Handovers []Handover `json:"handovers,omitempty"`
	// Ignored are the fields of the request that were left out, on the hop that read the request.
	Ignored []string `json:"ignored,omitempty"`
	// Unread are texts of the answer that look like tool calls, on the hop that reads tool calls.
	Unread []string `json:"unread,omitempty"`
	// Leave is the policy for a stream without a reader, on the hop that knows the readers.
	Leave    string   `json:"leave,omitempty"`
	Trace    string   `json:"trace,omitempty"` // W3C trace id
	Messages Messages `json:"messages"`
	Events   []Event  `json:"events,omitempty"`
}

// A Move is a stream's change from one hop below to another.
type Move struct {
	From   string  `json:"from"`
	To     string  `json:"to"`
	Reason string  `json:"reason"` // why the stream was lost
	AtMS   float64 `json:"at_ms"`  // since Began
	Tokens uint32  `json:"tokens"` // number of tokens delivered before the move
}

// New returns the story that the hops' records tell, outermost hop first. There is at least one
// record. The first record has the ending and the figures.
func New(records []*streamv1.Record) *Story {
	first := records[0]
	s := &Story{
		ID: first.GetStreamId(), State: state(first), Model: first.GetModel(), Message: first.GetMessage(),
		Reason: reason(first), Path: first.GetPath(), Origin: streamerr.Path(first.GetPath()).Origin(),
		Workers: first.GetWorkers(), Tokens: tokens(first),
	}
	for _, r := range records {
		if has := ledger.Word(r.GetExtent()); has != "" {
			s.Extent = has
		}
		if d := NewDelivery(r.GetDelivery()); d != nil {
			s.Delivery = d
		}
		h := hop(r)
		if r.GetStreamId() != s.ID {
			h.Stream = r.GetStreamId()
		}
		s.Hops = append(s.Hops, h)
	}
	return s
}

// List returns the body of GET /v1/streams: a page of streams, and the token that asks for the next
// page, or "" on the last page.
func List(page []*streamv1.Record, next string) []byte {
	list := struct {
		Streams []*Story `json:"streams"`
		Next    string   `json:"next_page_token,omitempty"`
	}{make([]*Story, 0, len(page)), next}
	for _, r := range page {
		list.Streams = append(list.Streams, New([]*streamv1.Record{r}))
	}
	return marshal(list)
}

// JSON returns the body of GET /v1/streams/{id}.
func (s *Story) JSON() []byte { return marshal(s) }

// Stopping returns the body of the answer to a stop.
func Stopping(id string, age time.Duration) []byte {
	return marshal(struct {
		ID    string  `json:"id"`
		State string  `json:"state"`
		AgeMS float64 `json:"age_ms"`
	}{id, "stopping", ms(age)})
}

// ParseAbort parses the body of SGLang's POST /abort_request, and returns the stream's id. SGLang
// matches rid as a prefix; here it names one stream.
func ParseAbort(body []byte) (rid string, err error) {
	fields, err := strict.Fields(body)
	if err != nil {
		return "", err
	}
	err = strict.Each(fields, &rid, nil, aborts)
	switch {
	case err != nil:
		return "", err
	case rid == "":
		return "", streamerr.InvalidParam("rid", "rid is missing").WithCode(streamerr.CodeMissing)
	case !stream.ValidID(rid):
		return "", streamerr.InvalidParam("rid", "rid is %.64q, which is not a valid stream id", rid)
	}
	return rid, nil
}

var aborts = map[string]func(rid *string, param string, raw json.RawMessage) error{
	"rid": func(rid *string, param string, raw json.RawMessage) (err error) {
		*rid, err = strict.String(param, raw)
		return err
	},
	"abort_all": func(_ *string, param string, raw json.RawMessage) error {
		all, err := strict.Boolean(param, raw)
		if err == nil && all {
			return streamerr.InvalidParam(param, "%s is not supported: it would end other users' streams", param).WithCode(streamerr.CodeUnsupportedValue)
		}
		return err
	},
}

// Print writes the story for people, hop by hop. The text cannot control a terminal.
func (s *Story) Print(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %s", s.ID, s.State)
	if s.Reason != "" {
		fmt.Fprintf(&b, ": %s by %s", s.Reason, s.Origin)
	}
	if s.Message != "" {
		fmt.Fprintf(&b, " (%s)", s.Message)
	}
	fmt.Fprintf(&b, "\n%d prompt tokens%s; %d generated, %d delivered, %d wasted\n", s.Tokens.Prompt, s.Tokens.cached(), s.Tokens.Generated, s.Tokens.Delivered, s.Tokens.Wasted)
	if text := extents[s.Extent]; text != "" {
		fmt.Fprintf(&b, "%s\n", text)
	}
	if s.Delivery != nil {
		fmt.Fprintf(&b, "%s\n", s.Delivery.text())
	}
	for _, h := range s.Hops {
		fmt.Fprintf(&b, "\n  %-14s %-8s %8.1f ms  in %d, out %d%s\n", h.Hop, h.State, h.TookMS, h.TokensIn, h.TokensOut, h.notes())
		if len(h.Path) > 0 {
			fmt.Fprintf(&b, "  %-14s %s: %s\n", "", h.Reason, strings.Join(h.Path, " > "))
		}
		if h.ReceivedPace != nil {
			fmt.Fprintf(&b, "  %-14s got tokens: %s\n", "", h.ReceivedPace.text())
		}
		if h.SentPace != nil {
			fmt.Fprintf(&b, "  %-14s sent tokens: %s\n", "", h.SentPace.text())
		}
		for _, over := range h.Handovers {
			fmt.Fprintf(&b, "  %-14s %s\n", "", over.text())
		}
		for _, m := range h.Moves {
			fmt.Fprintf(&b, "  %-14s moved from %s to %s after %.1f ms and %d tokens: %s\n", "", m.From, m.To, m.AtMS, m.Tokens, m.Reason)
		}
		h.printEvents(&b)
		if h.StopHeardMS != nil {
			fmt.Fprintf(&b, "  %-14s received the stop after %.1f ms", "", *h.StopHeardMS)
			switch {
			case h.StopConfirmedMS != nil:
				fmt.Fprintf(&b, "; the hops below had stopped %.1f ms later", *h.StopConfirmedMS)
			case h.State == "ended":
				b.WriteString("; nothing below has confirmed that it stopped")
			}
			b.WriteByte('\n')
		}
	}
	_, err := io.WriteString(w, printable.Text(b.String()))
	return err
}

// extents describe in words how much of the answer a client had when it left.
var extents = map[string]string{
	"nothing":   "the client left before the first token",
	"part":      "the client left with a part of the answer",
	"tool_call": "the client left with a whole tool call, and before the end of the answer",
	"answer":    "the client left with the whole answer, without the terminator of the stream",
}

func (t *Tokens) cached() string {
	if t.Cached == nil {
		return ""
	}
	return fmt.Sprintf(", %d of them cached", *t.Cached)
}

func (h *Hop) notes() (notes string) {
	if h.Stream != "" {
		notes += ", as " + h.Stream
	}
	if h.Leave != "" {
		notes += ", unread: " + h.Leave
	}
	if len(h.Ignored) > 0 {
		notes += ", left out of the request: " + strings.Join(h.Ignored, " ")
	}
	if len(h.Unread) > 0 {
		notes += ", in the text as if they were calls: " + strings.Join(h.Unread, " ")
	}
	return notes
}

func hop(r *streamv1.Record) Hop {
	end := time.Now()
	if r.GetEnded() != nil {
		end = r.GetEnded().AsTime()
	}
	began := r.GetBegan().AsTime()
	var moves []Move
	for _, m := range r.GetMoves() {
		moves = append(moves, Move{m.GetFrom(), m.GetTo(), streamerr.Reason(m.GetReason()).String(), ms(m.GetAt().AsTime().Sub(began)), m.GetTokens()})
	}
	return Hop{
		Hop: r.GetHop(), State: state(r), Peer: r.GetPeer(), Reason: reason(r), Path: r.GetPath(), Message: r.GetMessage(),
		Began: began.Format(time.RFC3339Nano), TookMS: ms(end.Sub(began)),
		StopHeardMS: since(r.GetBegan(), r.GetStopHeard()), StopConfirmedMS: since(r.GetStopHeard(), r.GetStopConfirmed()),
		FirstTokenMS: durationMS(r.GetFirstToken()), PerTokenMS: durationMS(r.GetPerToken()), LongestGapMS: durationMS(r.GetLongestGap()),
		TokensIn: r.GetTokensIn(), TokensOut: r.GetTokensOut(), ReceivedPace: newTokenPace(r.GetReceivedPace()), SentPace: newTokenPace(r.GetSentPace()),
		Moves: moves, Handovers: handovers(r), Ignored: r.GetIgnored(), Unread: r.GetUnread(), Leave: r.GetLeave(),
		Trace: r.GetTraceId(), Messages: Messages{r.GetMessagesReceived(), r.GetMessagesSent()}, Events: events(r),
	}
}

func state(r *streamv1.Record) string {
	return strings.ToLower(strings.TrimPrefix(r.GetState().String(), "STATE_"))
}

func reason(r *streamv1.Record) string {
	if r.GetReason() == streamv1.Reason_REASON_UNSPECIFIED {
		return ""
	}
	return streamerr.Reason(r.GetReason()).String()
}

func since(from, to *timestamppb.Timestamp) *float64 {
	if from == nil || to == nil {
		return nil
	}
	d := ms(to.AsTime().Sub(from.AsTime()))
	return &d
}

func durationMS(p *durationpb.Duration) *float64 {
	if p == nil {
		return nil
	}
	d := ms(p.AsDuration())
	return &d
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func marshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // cannot happen: structs of strings and numbers
	}
	return b
}
