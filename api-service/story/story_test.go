package story_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/whence-dev/whence/api-service/story"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func at(ms int) *timestamppb.Timestamp {
	return timestamppb.New(time.Date(2026, 1, 2, 3, 4, 5, ms*int(time.Millisecond), time.UTC))
}

func records() []*streamv1.Record {
	return []*streamv1.Record{
		{
			StreamId: "id", Hop: "api-service", State: streamv1.State_STATE_ENDED, Peer: "client:1", Model: "m", Began: at(0), StopHeard: at(100),
			StopConfirmed: at(102), Ended: at(103), Reason: streamv1.Reason_REASON_CLIENT_GONE, Path: []string{"client", "api-service"},
			Message: "gone", PromptTokens: 7, TokensIn: 10, TokensOut: 8, Leave: "detach",
			FirstToken: durationpb.New(20 * time.Millisecond), PerToken: durationpb.New(1500 * time.Microsecond), LongestGap: durationpb.New(9 * time.Millisecond),
		},
		{
			StreamId: "id", Hop: "llm-worker/0", State: streamv1.State_STATE_LIVE, Began: at(1), PromptTokens: 7, TokensIn: 10, TokensOut: 9,
		},
	}
}

func TestStoryHasTheFirstHopsEndingAndAllHops(t *testing.T) {
	s := story.New(records())
	if s.State != "ended" || s.Reason != "client_gone" || s.Origin != "client" || s.Tokens != (story.Tokens{Prompt: 7, Generated: 10, Delivered: 8, Wasted: 2}) {
		t.Errorf("%+v", s)
	}
	if h := s.Hops[0]; h.TookMS != 103 || *h.StopHeardMS != 100 || *h.StopConfirmedMS != 2 || h.Began != "2026-01-02T03:04:05Z" {
		t.Errorf("%+v", h)
	} else if *h.FirstTokenMS != 20 || *h.PerTokenMS != 1.5 || *h.LongestGapMS != 9 {
		t.Errorf("first token after %v ms, %v ms per token, longest gap %v ms", *h.FirstTokenMS, *h.PerTokenMS, *h.LongestGapMS)
	}
	if h := s.Hops[1]; h.State != "live" || h.Reason != "" || h.StopHeardMS != nil || h.FirstTokenMS != nil {
		t.Errorf("%+v", h)
	}
}

func TestCachedTokensAreThoseOfTheFirstHop(t *testing.T) {
	told := records()
	if s := story.New(told); s.Tokens.Cached != nil || strings.Contains(string(s.JSON()), "cached") {
		t.Error("no hop has reported cached tokens:", s.Tokens)
	}
	told[1].CachedTokens = new(uint32(3)) // reported by a worker; the answer is not complete yet
	if s := story.New(told); s.Tokens.Cached != nil {
		t.Error(s.Tokens)
	}
	told[0].CachedTokens = new(uint32(5))
	s := story.New(told)
	var b strings.Builder
	if err := s.Print(&b); err != nil || !strings.Contains(b.String(), "\n7 prompt tokens, 5 of them cached; 10 generated") || !strings.Contains(string(s.JSON()), `"cached":5`) {
		t.Error(b.String(), err)
	}
}

func TestPrintWritesTheStory(t *testing.T) {
	var b strings.Builder
	if err := story.New(records()).Print(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"id  ended: client_gone by client (gone)", "7 prompt tokens; 10 generated, 8 delivered, 2 wasted",
		"client_gone: client > api-service", "received the stop after 100.0 ms; the hops below had stopped 2.0 ms later", "llm-worker/0   live", "in 10, out 8, unread: detach\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is missing:\n%s", want, b.String())
		}
	}
}

// TestPrintSaysThatAStopWasOnlyAsked: a hop that has ended does not know whether the engine works on.
func TestPrintSaysThatAStopWasOnlyAsked(t *testing.T) {
	const asked = "received the stop after 100.0 ms; nothing below has confirmed that it stopped\n"
	told := records()
	told[0].StopConfirmed = nil
	var ended, live strings.Builder
	err := story.New(told).Print(&ended)
	told[0].State = streamv1.State_STATE_LIVE
	if err = errors.Join(err, story.New(told).Print(&live)); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(ended.String(), asked) || !strings.Contains(live.String(), "received the stop after 100.0 ms\n") {
		t.Errorf("%q is missing:\n%s\nor it is too early:\n%s", asked, &ended, &live)
	}
}

// TestPrintWritesThePaceOfEachHop: the hop that got tokens evenly, and sent them unevenly, is the slow
// one.
func TestPrintWritesThePaceOfEachHop(t *testing.T) {
	pace := func(first, p50, p95, longest time.Duration) *streamv1.TokenPace {
		return &streamv1.TokenPace{First: durationpb.New(first), P50: durationpb.New(p50), P95: durationpb.New(p95), Longest: durationpb.New(longest)}
	}
	told := records()
	told[0].ReceivedPace = pace(20*time.Millisecond, 5*time.Millisecond, 6*time.Millisecond, 8*time.Millisecond)
	told[0].SentPace = pace(21*time.Millisecond, 5*time.Millisecond, 60*time.Millisecond, 1500*time.Millisecond)
	told[1].SentPace = pace(3*time.Millisecond, 0, 0, 0)
	var b strings.Builder
	if err := story.New(told).Print(&b); err != nil {
		t.Fatal(err)
	}
	want := "got tokens: first token after 20.0 ms; gaps: p50 5.0 ms, p95 6.0 ms, longest 8.0 ms\n" +
		"                 sent tokens: first token after 21.0 ms; gaps: p50 5.0 ms, p95 60.0 ms, longest 1500.0 ms\n"
	if one := "sent tokens: first token after 3.0 ms\n"; !strings.Contains(b.String(), want) || !strings.Contains(b.String(), one) {
		t.Errorf("%q is missing:\n%s", want, &b)
	}
}

func TestMovesAppearOnTheHopThatMadeThem(t *testing.T) {
	told := []*streamv1.Record{
		{StreamId: "id", Hop: "api-service", Began: at(0), PromptTokens: 7, TokensIn: 23, TokensOut: 20},
		{
			StreamId: "id", Hop: "chat-service", Began: at(1), PromptTokens: 7, TokensIn: 23, TokensOut: 20,
			Moves: []*streamv1.Move{{From: "llm-worker/0", To: "llm-worker/1", Reason: streamv1.Reason_REASON_PEER_LOST, At: at(51), Tokens: 8}},
		},
		{StreamId: "id", Hop: "llm-worker/0", Began: at(2), PromptTokens: 7, TokensIn: 10},
		{StreamId: "id", Hop: "llm-worker/1", Began: at(52), TokensIn: 13},
		{StreamId: "id", Hop: "llm-worker/2", Began: at(53)}, // refused the stream
	}
	s := story.New(told)
	if want := (story.Move{From: "llm-worker/0", To: "llm-worker/1", Reason: "peer_lost", AtMS: 50, Tokens: 8}); len(s.Hops[1].Moves) != 1 || s.Hops[1].Moves[0] != want {
		t.Errorf("%+v", s.Hops[1].Moves)
	}
	if s.Tokens != (story.Tokens{Prompt: 7, Generated: 23, Delivered: 20, Wasted: 3}) {
		t.Errorf("%+v", s.Tokens)
	}
	var b strings.Builder
	if err := s.Print(&b); err != nil || !strings.Contains(b.String(), "moved from llm-worker/0 to llm-worker/1 after 50.0 ms and 8 tokens: peer_lost\n") {
		t.Error(b.String(), err)
	}
}

func TestHandoversNameTheWorkerThatReadThePrompt(t *testing.T) {
	told := records()
	told[0].Handovers = []*streamv1.Handover{
		{From: "w/0", To: "w/1", Reason: streamv1.Reason_REASON_COMPLETED, At: at(20), Took: durationpb.New(12 * time.Millisecond)},
		{From: "w/0", To: "w/2", Reason: streamv1.Reason_REASON_PEER_LOST, At: at(50), Took: durationpb.New(time.Millisecond)},
		{To: "w/2", Reason: streamv1.Reason_REASON_UNAVAILABLE, At: at(60)},
		{From: "w/0", Reason: streamv1.Reason_REASON_CLIENT_GONE, At: at(70), Took: durationpb.New(5 * time.Millisecond)},
	}
	s := story.New(told)
	if want := (story.Handover{From: "w/0", To: "w/1", Reason: "completed", AtMS: 20, TookMS: 12}); len(s.Hops[0].Handovers) != 4 || s.Hops[0].Handovers[0] != want {
		t.Errorf("%+v", s.Hops[0].Handovers)
	}
	var b strings.Builder
	if err := s.Print(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"prompt read by w/0 for w/1 in 12.0 ms\n", "prompt read by w/2 itself: w/0 failed after 1.0 ms (peer_lost)\n",
		"prompt read by w/2 itself: no other worker was available (unavailable)\n", "prompt read by w/0 in 5.0 ms, handover abandoned (client_gone)\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is missing:\n%s", want, b.String())
		}
	}
}

func TestAbortNamesOneStream(t *testing.T) {
	if rid, err := story.ParseAbort([]byte(`{"rid":"a","abort_all":false,"abort_message":null,"novelty":1}`)); err != nil || rid != "a" {
		t.Error(rid, err)
	}
	for body, param := range map[string]string{
		``: "", `[]`: "", `{"rid":"a"}{}`: "", `{}`: "rid", `{"rid":5}`: "rid", `{"rid":""}`: "rid", `{"rid":"no id"}`: "rid",
		`{"RID":"a"}`: "rid", `{"abort_all":true}`: "abort_all", `{"rid":"a","abort_all":1}`: "abort_all",
	} {
		_, err := story.ParseAbort([]byte(body))
		if e := streamerr.As(err); e == nil || e.Reason != streamerr.Invalid || e.Param != param || strings.Contains(e.Text(), "Go ") {
			t.Errorf("%s: %v", body, err)
		}
	}
}

func TestListIsNeverNull(t *testing.T) {
	if got := string(story.List(nil, "")); got != `{"streams":[]}` {
		t.Error(got)
	}
}

func TestStoryNamesTheStreamsOfItsChoices(t *testing.T) {
	record := func(id, hop string, in, out uint32) *streamv1.Record {
		return &streamv1.Record{StreamId: id, Hop: hop, Began: timestamppb.Now(), Ended: timestamppb.Now(), PromptTokens: in, TokensIn: in, TokensOut: out}
	}
	s := story.New([]*streamv1.Record{record("s", "api-service", 11, 9), record("s", "chat-service", 11, 9), record("s.0", "llm-worker/0", 5, 4), record("s.1", "llm-worker/1", 6, 5)})
	if s.Tokens != (story.Tokens{Prompt: 11, Generated: 11, Delivered: 9, Wasted: 2}) || s.Hops[1].Stream != "" || s.Hops[3].Stream != "s.1" {
		t.Errorf("%+v", s)
	}
	var b strings.Builder
	if err := s.Print(&b); err != nil || !strings.Contains(b.String(), "in 6, out 5, as s.1\n") {
		t.Error(b.String(), err)
	}
}

func TestHopsHaveTheirPace(t *testing.T) {
	sent := &streamv1.TokenPace{First: durationpb.New(12 * time.Millisecond), P50: durationpb.New(30 * time.Millisecond), P95: durationpb.New(45 * time.Millisecond), Longest: durationpb.New(700 * time.Millisecond)}
	s := story.New([]*streamv1.Record{{StreamId: "id", Hop: "api-service", Began: at(0), SentPace: sent}})
	if got := s.Hops[0]; got.ReceivedPace != nil || got.SentPace == nil || *got.SentPace != (story.TokenPace{FirstMS: 12, P50MS: 30, P95MS: 45, LongestMS: 700}) {
		t.Errorf("%+v, %+v", got.ReceivedPace, got.SentPace)
	}
}
