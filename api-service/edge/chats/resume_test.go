package chats

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/whence-dev/whence/api-service/position"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// An edgeLog is an edge's replay log of one stream.
type edgeLog struct {
	notes []string
	texts []string // by choice
	end   bool
}

// follow runs a stream until the log has more notes than before, by more, or the stream has ended.
func (l *edgeLog) follow(t *testing.T, engine Engine, record *ledger.Record, req *chatv1.ChatRequest, more int) error {
	t.Helper()
	ctx, ctl := stream.WithControl(t.Context(), time.Second)
	defer ctl.Release()
	for out, err := range engine.Range(ledger.With(ctx, record), req) {
		if err != nil {
			return err
		}
		if l.end = out.GetEnd() != nil; l.end {
			return nil
		}
		if out.GetDelta() == nil && out.GetChoiceEnd() == nil {
			continue
		}
		l.notes = append(l.notes, string(position.AppendNote(nil, out)))
		l.texts[out.GetDelta().GetChoice()] += out.GetDelta().GetText()
		if more--; more == 0 {
			return nil
		}
	}
	return nil
}

func TestInterruptedStreamIsResumedAfterItsLastLoggedItem(t *testing.T) {
	for name, req := range map[string]*chatv1.ChatRequest{
		"one choice":      {},
		"several choices": {N: 3},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, "chat-service/0", "127.0.0.1:0")
			f := still(t, s)
			req.TellIds, req.StreamId = true, stream.NewID()
			asked := proto.CloneOf(req)
			l := &edgeLog{texts: make([]string, several(req))}
			if err := l.follow(t, f.Start, nil, proto.CloneOf(req), 20); err != nil {
				t.Fatal(err)
			}
			gone := &streamerr.Error{Reason: streamerr.PeerLost, Path: streamerr.NewPath("api/0"), Message: "it is dead"}
			for takeover := range 3 {
				told, err := position.Read(several(req), slices.Values(l.notes))
				if err != nil {
					t.Fatal(err)
				}
				record := records.Open(stream.NewID(), "api", "client")
				more := 20
				if takeover == 2 {
					close(s.finish)
					more = 0
				}
				if err := l.follow(t, f.Resume(Interruption{From: "api/0", Cause: gone, Delivered: told}), record, proto.CloneOf(req), more); err != nil {
					t.Fatal(err)
				}
				moves := record.Proto().GetMoves()
				if len(moves) != 1 || moves[0].GetFrom() != "api/0" || moves[0].GetTo() != "api" || streamerr.Reason(moves[0].GetReason()) != streamerr.PeerLost {
					t.Errorf("moves: %v", moves)
				}
			}
			for choice, text := range l.texts {
				var want strings.Builder
				for n := 0; want.Len() < len(text); n++ {
					fmt.Fprintf(&want, "%d ", n)
				}
				if text == "" || text != want.String() || !l.end {
					t.Errorf("choice %d: %q, ended %t", choice, text, l.end)
				}
			}
			if !proto.Equal(asked, req) {
				t.Error("the request was changed")
			}
		})
	}
}

func TestInterruptedStreamEndsWithItsCauseIfNoChatServiceResumesIt(t *testing.T) {
	s := serve(t, "chat-service/0", "127.0.0.1:0")
	f := still(t, s)
	f.within = 100 * time.Millisecond
	gone := &streamerr.Error{Reason: streamerr.PeerLost, Path: streamerr.NewPath("api/0")}
	for name, refusal := range map[string]*streamerr.Error{
		"no worker resumes": streamerr.InvalidParam("generated", "not here"),
		"no room in time":   streamerr.New(streamerr.Overloaded, "full"),
	} {
		s.refuse.Store(refusal)
		l := &edgeLog{texts: make([]string, 1)}
		err := l.follow(t, f.Resume(Interruption{From: "api/0", Cause: gone, Delivered: make([]position.Choice, 1)}), nil, &chatv1.ChatRequest{TellIds: true, StreamId: stream.NewID()}, 1)
		if e := streamerr.As(err); e != gone {
			t.Errorf("%s: %v", name, err)
		}
	}
}
