package sglang_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/leaktest"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/llm-worker/engine/beside"
	"github.com/whence-dev/whence/llm-worker/engine/beside/besidetest"
	"github.com/whence-dev/whence/llm-worker/engine/features"
	"github.com/whence-dev/whence/llm-worker/engine/sglang"
	"github.com/whence-dev/whence/llm-worker/engine/sglang/sglangtest"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func overGRPC() besidetest.Subject {
	return besidetest.Subject{Dialect: sglangtest.Scheduler(), New: func(o beside.Options) (besidetest.Engine, error) {
		return sglang.New(sglang.Options{Options: o}, nil)
	}}
}

func overHTTP(seeded, incremental bool) besidetest.Subject {
	return besidetest.Subject{Dialect: sglangtest.Generator(seeded, incremental), New: func(o beside.Options) (besidetest.Engine, error) {
		o.Upstream = "http://" + o.Upstream
		return sglang.New(sglang.Options{Options: o}, &beside.Config{Vocab: besidetest.Vocab, EOS: []uint32{besidetest.EOS}})
	}}
}

func TestConformance(t *testing.T) {
	for name, s := range map[string]besidetest.Subject{
		"gRPC": overGRPC(), "HTTP": overHTTP(false, false), "HTTP, incremental": overHTTP(true, true),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			besidetest.Run(t, s)
		})
	}
}

// asked returns sampling options with every field set, and the fields of a request with them, by name.
func asked() (*llmv1.Sampling, map[string]any) {
	return besidetest.Everything(features.SGLangGRPC.Sampling()), map[string]any{
		"temperature": float32(0.5), "top_p": float32(0.9), "top_k": uint64(40), "min_p": float32(0.05), "repetition_penalty": float32(1.1),
		"frequency_penalty": float32(0.2), "presence_penalty": float32(0.3), "logit_bias": map[uint64]float32{7: -1.5},
		"min_tokens": uint64(2), "max_tokens": uint64(9), "ignore_eos": true, "stop_token_ids": []uint32{8}, "n": uint64(1),
	}
}

func TestRequestsHaveTheServersFields(t *testing.T) {
	s := overGRPC()
	e, server := s.Start(t, besidetest.Count)
	everything, want := asked()
	for name, test := range map[string]struct {
		asked *llmv1.Sampling
		want  map[string]any
	}{
		"everything": {everything, want},
		"reasoning and a form": {&llmv1.Sampling{MaxTokens: proto.Uint32(3), Guide: &llmv1.Guide{FreeUntil: "E", Forms: []*llmv1.GuideForm{{Schema: "{}", After: "."}}}}, map[string]any{
			"temperature": float32(1), "top_p": float32(1), "top_k": uint64(1<<64 - 1), "repetition_penalty": float32(1), "max_tokens": uint64(3), "n": uint64(1),
			"structural_tag": `{"type":"structural_tag","format":{"type":"sequence","elements":[{"type":"tag","begin":"","content":{"type":"any_text"},"end":"E"},` +
				`{"type":"sequence","elements":[{"type":"json_schema","json_schema":{}},{"type":"const_string","value":"."}]}]}}`,
		}},
		// Unset fields are sent with their defaults: an absent one would be read as 0.
		"nothing": {&llmv1.Sampling{MaxTokens: proto.Uint32(3)}, map[string]any{
			"temperature": float32(1), "top_p": float32(1), "top_k": uint64(1<<64 - 1), "repetition_penalty": float32(1), "max_tokens": uint64(3), "n": uint64(1),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			before := len(server.Asked())
			if r := besidetest.Read(t.Context(), e, &workerv1.TokenRequest{Prompt: []uint32{10}, Sampling: test.asked}, nil); r.Err != nil {
				t.Fatal(r.Err)
			}
			if got := server.Asked()[before].Sampling; !reflect.DeepEqual(got, test.want) {
				t.Errorf("got  %v\nwant %v", got, test.want)
			}
		})
	}
}

func TestRequestsHaveTheServersFieldsOverHTTP(t *testing.T) {
	s := overHTTP(true, false)
	e, server := s.Start(t, besidetest.Count)
	req := &workerv1.TokenRequest{Prompt: []uint32{10}, Sampling: besidetest.Everything(features.SGLangHTTP.Sampling("seed"))}
	if r := besidetest.Read(t.Context(), e, req, nil); r.Err != nil {
		t.Fatal(r.Err)
	}
	want := map[string]any{
		"temperature": 0.5, "top_p": 0.9, "top_k": 40.0, "min_p": 0.05, "repetition_penalty": 1.1, "frequency_penalty": 0.2, "presence_penalty": 0.3,
		"logit_bias": map[string]any{"7": -1.5}, "min_tokens": uint64(2), "max_tokens": uint64(9), "ignore_eos": true, "stop_token_ids": []any{8.0},
		"sampling_seed": float64((1<<40 + 5) % (1<<31 - 1)),
	}
	if got := server.Asked()[0].Sampling; !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func TestSeedsAreRefusedWhereTheyWouldBeIgnored(t *testing.T) {
	for name, s := range map[string]besidetest.Subject{"gRPC": overGRPC(), "HTTP": overHTTP(false, false)} {
		t.Run(name, func(t *testing.T) {
			e, server := s.Start(t, besidetest.Count)
			req := besidetest.Ask(3)
			req.Sampling.Seed = proto.Uint64(7)
			r := besidetest.Read(t.Context(), e, req, nil)
			if err := streamerr.As(r.Err); err.Reason != streamerr.Invalid || err.Param != "sampling.seed" || len(server.Asked()) > 0 {
				t.Error(r.Err)
			}
			if slices.Contains(e.Upstream().Capabilities.GetSampling(), "seed") {
				t.Error(e.Upstream().Capabilities)
			}
		})
	}
}

// event sends an event that is not a part of the answer.
func event(data string) besidetest.Script {
	return func(a *besidetest.Answer) error {
		a.Count(1)
		a.Send(besidetest.Message("data: " + data + "\n\n"))
		return nil
	}
}

func refuses(code codes.Code) besidetest.Script {
	return func(*besidetest.Answer) error { return status.Error(code, "because") }
}

func TestEveryFailureOverHTTPHasItsEnding(t *testing.T) {
	s := overHTTP(false, false)
	complete := func(finish string) besidetest.Script {
		return func(a *besidetest.Answer) error { a.Count(1); a.Complete(finish); return nil }
	}
	meta := func(ids, finish, count string) besidetest.Script {
		return event(`{"output_ids":` + ids + `,"meta_info":{"finish_reason":` + finish + `,"completion_tokens":` + count + `}}`)
	}
	s.Misdeeds(t, map[string]besidetest.Misdeed{
		"closes at once":                 {Script: func(a *besidetest.Answer) error { a.Send(besidetest.Message(": ping\n\n")); return nil }, Reason: streamerr.PeerLost, Says: "without an ending"},
		"closes in mid-answer":           {Script: func(a *besidetest.Answer) error { a.Count(1); return nil }, Reason: streamerr.PeerLost, Tokens: 1, Says: "without an ending"},
		"[DONE] without a finish":        {Script: event("[DONE]"), Reason: streamerr.PeerLost, Tokens: 1, Says: "finish_reason"},
		"breaks the connection":          {Script: func(a *besidetest.Answer) error { a.Count(1); a.Server.CutOnceRead(); return nil }, Reason: streamerr.PeerLost, Tokens: 1, Says: "broke the connection"},
		"breaks it before it answers":    {Script: func(a *besidetest.Answer) error { a.Server.Cut(); return nil }, Reason: streamerr.Unavailable, Says: "broke the connection before it answered"},
		"aborts":                         {Script: complete("abort"), Reason: streamerr.PeerLost, Tokens: 1, Says: "aborted the request"},
		"aborts with a reason":           {Script: meta("[1]", `{"type":"abort","message":"Input is too long","status_code":400}`, "1"), Reason: streamerr.Invalid, Tokens: 1, Says: "too long"},
		"aborts, for its queue is full":  {Script: meta("[1]", `{"type":"abort","message":"The request queue is full.","status_code":503}`, "1"), Reason: streamerr.Overloaded, Tokens: 1, Says: "queue"},
		"aborts, since it is full":       {Script: meta("[1]", `{"type":"abort","message":"queue","status_code":503}`, "1"), Reason: streamerr.Unavailable, Tokens: 1, Says: "queue"},
		"aborts, since we ask too often": {Script: meta("[1]", `{"type":"abort","message":"slow","status_code":429}`, "1"), Reason: streamerr.Overloaded, Tokens: 1, Says: "slow"},
		"ends in its own way":            {Script: complete("function_call"), Reason: streamerr.EngineFailed, Tokens: 1, Says: `"function_call"`},
		"goes on behind its ending": {Script: func(a *besidetest.Answer) error {
			a.Count(1)
			a.Send(besidetest.Message(`data: {"output_ids":[1,5],"meta_info":{"finish_reason":{"type":"stop"},"completion_tokens":2}}` + "\n\n"))
			a.Chunk(7)
			return nil
		}, Reason: streamerr.EngineFailed, Tokens: 2, Says: "continues"},
		"error in the stream": {Script: event(`{"error":{"message":"CUDA out of memory"}}`), Reason: streamerr.EngineFailed, Tokens: 1, Says: "CUDA out of memory"},
		"error with a status": {Script: event(`{"error":{"object":"error","message":"no room","type":"x","code":503}}`), Reason: streamerr.Unavailable, Tokens: 1, Says: "no room"},
		"error of the request": {Script: func(a *besidetest.Answer) error {
			a.Send(besidetest.Message(`data: {"error":{"message":"Input is longer than the context"}}` + "\n\n"))
			return nil
		}, Reason: streamerr.Invalid, Says: "longer than the context"},
		"no JSON":                      {Script: event("hello"), Reason: streamerr.EngineFailed, Tokens: 1, Says: "an invalid answer"},
		"JSON about something else":    {Script: event(`{"hello":"world"}`), Reason: streamerr.EngineFailed, Tokens: 1, Says: "meta_info"},
		"a count that does not fit":    {Script: meta("[1,2]", "null", "9"), Reason: streamerr.EngineFailed, Tokens: 1, Says: "output_ids"},
		"fewer tokens than before":     {Script: meta("[]", "null", "0"), Reason: streamerr.EngineFailed, Tokens: 1, Says: "output_ids"},
		"a token that the model lacks": {Script: meta("[1,99999]", "null", "2"), Reason: streamerr.EngineFailed, Tokens: 1, Says: "vocabulary"},
		"never ends":                   {Script: func(a *besidetest.Answer) error { a.Count(1 << 20); return nil }, Reason: streamerr.EngineFailed, Tokens: 50, Says: "more tokens than the 50"},
		"status 400":                   {Script: refuses(codes.InvalidArgument), Reason: streamerr.Invalid, Says: "because"},
		"status 404":                   {Script: refuses(codes.NotFound), Reason: streamerr.NotFound, Says: "because"},
		"status 429":                   {Script: refuses(codes.ResourceExhausted), Reason: streamerr.Overloaded, Says: "because"},
		"status 500":                   {Script: refuses(codes.Internal), Reason: streamerr.EngineFailed, Says: "because"},
		"status 401":                   {Script: refuses(codes.Unauthenticated), Reason: streamerr.EngineFailed, Says: "--upstream-key"},
	})
}

func TestAnswerIsCompleteWithoutItsLastEvent(t *testing.T) {
	send := func(a *besidetest.Answer, finish string, ids string, count int) {
		a.Send(besidetest.Message(fmt.Sprintf("data: {\"output_ids\":%s,\"meta_info\":{\"finish_reason\":%s,\"prompt_tokens\":3,\"completion_tokens\":%d}}\n\n", ids, finish, count)))
	}
	for name, test := range map[string]struct {
		script besidetest.Script
		finish llmv1.Finish
	}{
		"closed behind finish_reason": {func(a *besidetest.Answer) error { send(a, `{"type":"stop"}`, "[5]", 1); return nil }, llmv1.Finish_FINISH_STOP},
		"cut behind finish_reason":    {func(a *besidetest.Answer) error { send(a, `{"type":"length"}`, "[5]", 1); a.Server.Cut(); return nil }, llmv1.Finish_FINISH_LENGTH},
		"[DONE] behind all tokens": {func(a *besidetest.Answer) error {
			send(a, "null", "[5,6,7,8]", 4)
			a.Send(besidetest.Message("data: [DONE]\n\n"))
			return nil
		}, llmv1.Finish_FINISH_LENGTH},
		"[DONE] behind fewer": {func(a *besidetest.Answer) error {
			send(a, "null", "[5,6,7]", 3)
			a.Send(besidetest.Message("data: [DONE]\n\n"))
			return nil
		}, 0},
		"closed behind all tokens": {func(a *besidetest.Answer) error { send(a, "null", "[5,6,7,8]", 4); return nil }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := overHTTP(false, false)
			e, _ := s.Start(t, test.script)
			r := besidetest.Read(t.Context(), e, besidetest.Ask(4), nil)
			if r.End.GetFinish() != test.finish || (test.finish == 0) != errors.Is(r.Err, streamerr.PeerLost) {
				t.Error(r.Tokens, r.End, r.Err)
			}
		})
	}
}

// TestErrorMessageOverGRPCHasTheReasonOfItsStatus: SGLang ends a failed answer with a GenerateError.
func TestErrorMessageOverGRPCHasTheReasonOfItsStatus(t *testing.T) {
	s := overGRPC()
	all := map[string]besidetest.Misdeed{}
	for status, reason := range map[string]streamerr.Reason{
		"400": streamerr.Invalid, "429": streamerr.Overloaded, "503": streamerr.Unavailable, "500": streamerr.EngineFailed, "": streamerr.EngineFailed, "x": streamerr.EngineFailed,
	} {
		failed := besidetest.Message(nil).AddText(1, "because").AddText(2, status)
		all["status "+status] = besidetest.Misdeed{Script: func(a *besidetest.Answer) error {
			a.Count(1)
			a.Send(besidetest.Message(nil).AddText(4, string(failed)))
			return nil
		}, Reason: reason, Tokens: 1, Says: "because"}
	}
	s.Misdeeds(t, all)
}

func TestServerThatReportsNoVocabularyNeedsAModel(t *testing.T) {
	t.Parallel()
	s := overHTTP(false, false)
	s.New = func(o beside.Options) (besidetest.Engine, error) {
		o.Upstream = "http://" + o.Upstream
		return sglang.New(sglang.Options{Options: o}, nil)
	}
	server := besidetest.Start(t, s.Dialect, besidetest.Count, "")
	e, health := s.Watched(t, server.Addr)
	polltest.Eventually(t, "it is asked again", func() bool { return server.Looks.Load() > 1 })
	if r := besidetest.Read(t.Context(), e, besidetest.Ask(1), nil); len(health) > 0 || !errors.Is(r.Err, streamerr.Unavailable) {
		t.Error(r.Err)
	}
}

func TestInvalidOptionsAreRefused(t *testing.T) {
	for upstream, says := range map[string]string{
		"127.0.0.1:30000": "", "http://127.0.0.1:30000": "", "": "--upstream", "127.0.0.1": "--upstream", ":30000": "--upstream", "tcp://127.0.0.1:1": "--upstream",
	} {
		o := sglang.Options{Options: beside.Options{Upstream: upstream}}
		if err := o.Validate(); (err == nil) != (says == "") || err != nil && !strings.HasPrefix(err.Error(), says) {
			t.Errorf("%q: %v", upstream, err)
		}
	}
}

func BenchmarkStop(b *testing.B) {
	b.Run("gRPC", func(b *testing.B) { besidetest.BenchmarkStop(b, overGRPC()) })
	b.Run("HTTP", func(b *testing.B) { besidetest.BenchmarkStop(b, overHTTP(false, false)) })
}

func BenchmarkTokens(b *testing.B) {
	b.Run("gRPC", func(b *testing.B) { besidetest.BenchmarkTokens(b, overGRPC()) })
	b.Run("HTTP", func(b *testing.B) { besidetest.BenchmarkTokens(b, overHTTP(false, true)) })
}

// TestServerThatCannotListAdaptersServesItsModel: SGLang answers with an error if it was started without
// --enable-lora.
func TestServerThatCannotListAdaptersServesItsModel(t *testing.T) {
	t.Parallel()
	s := overGRPC()
	s.Dialect.Refuses = map[string]error{"ListLoadedLoRAAdapters": status.Error(codes.Internal, "LoRA is not enabled")}
	e, server := s.Start(t, besidetest.Count)
	if r := besidetest.Read(t.Context(), e, besidetest.Ask(3), nil); r.Err != nil || len(r.Tokens) != 3 {
		t.Error(r.Tokens, r.Err)
	}
	req := besidetest.Ask(3)
	req.Adapter = "legal"
	if r := besidetest.Read(t.Context(), e, req, nil); !errors.Is(r.Err, streamerr.Invalid) && !errors.Is(r.Err, streamerr.NotFound) || len(server.Asked()) != 1 {
		t.Error("an adapter that the server does not list:", r.Err)
	}
}
