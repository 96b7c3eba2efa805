package vllm_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/llm-worker/engine/beside"
	"github.com/whence-dev/whence/llm-worker/engine/beside/besidetest"
	"github.com/whence-dev/whence/llm-worker/engine/vllm"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/stream/streamtest"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func texts(all ...[]uint32) *workerv1.EmbedRequest {
	req := &workerv1.EmbedRequest{}
	for _, ids := range all {
		req.Inputs = append(req.Inputs, &workerv1.TokenIds{Ids: ids})
	}
	return req
}

// embedder starts an engine on a vLLM whose model only embeds.
func embedder(t *testing.T) (*vllm.Engine, *besidetest.Server) {
	t.Helper()
	s := subject(nil)
	server := besidetest.Start(t, s.Dialect, besidetest.Count, "")
	server.NoModel.Store(true)
	e, health := s.Watched(t, server.Addr)
	if !polltest.Receive(t, "the health is known", health) {
		t.Fatal("it embeds, and is not healthy")
	}
	return e.(*vllm.Engine), server
}

// TestServerThatOnlyEmbedsIsHealthy: one call for each text, and the vectors in the order of the texts.
func TestServerThatOnlyEmbedsIsHealthy(t *testing.T) {
	t.Parallel()
	e, server := embedder(t)
	if up := e.Upstream(); up.Ask != nil || up.AskScore != nil || !strings.Contains(strings.Join(up.Facts, ""), "does not generate") || up.Context != besidetest.Context {
		t.Errorf("%+v", up)
	}
	if r := besidetest.Read(t.Context(), e, besidetest.Ask(1), nil); !errors.Is(r.Err, streamerr.Invalid) || streamerr.As(r.Err).Param != "model" {
		t.Error(r.Err)
	}
	var all [][]uint32
	for i := range 100 {
		all = append(all, make([]uint32, i+1))
		all[i][0] = 1
	}
	before := len(server.Embedded())
	resp, err := e.Embed(t.Context(), texts(all...))
	if err != nil || len(resp.GetEmbeddings()) != 100 || resp.GetModel() != "tiny" || resp.GetEnd().GetUsage().GetPromptTokens() != 5050 || len(server.Embedded())-before != 100 {
		t.Fatal(err, resp.GetEnd(), len(server.Embedded()))
	}
	for i, v := range resp.GetEmbeddings() {
		if x := v.GetValues(); len(x) != 2 || int(x[0]/x[1]+0.5) != i+1 {
			t.Errorf("vector %d is %v", i, x)
		}
	}
	for param, req := range map[string]*workerv1.EmbedRequest{
		"inputs[1]":  texts([]uint32{1}, nil),
		"inputs[0]":  texts([]uint32{besidetest.Vocab}),
		"dimensions": {Inputs: texts([]uint32{1}).GetInputs(), Dimensions: proto.Uint32(2)},
	} {
		if _, err := e.Embed(t.Context(), req); streamerr.As(err).Param != param {
			t.Errorf("%s: %v", param, err)
		}
	}
}

func TestVectorsOverGRPCKeepTheContract(t *testing.T) {
	streamtest.Run(t, func(t *testing.T) streamtest.Subject[*workerv1.EmbedRequest, *workerv1.EmbedResponse] {
		e, _ := embedder(t)
		return streamtest.Subject[*workerv1.EmbedRequest, *workerv1.EmbedResponse]{
			Engine: stream.Unary(e.Embed),
			Short:  func() *workerv1.EmbedRequest { return texts([]uint32{1, 2}, []uint32{3}) },
			Bad:    func() *workerv1.EmbedRequest { return texts(nil) },
			Live:   func() int { return int(e.Load().GetRunning()) },
		}
	})
}

// TestStopAbortsTheCallsOfVectors: each call has an id, by which the stop is confirmed.
func TestStopAbortsTheCallsOfVectors(t *testing.T) {
	t.Parallel()
	e, server := embedder(t)
	server.Held.Store(true)
	ctx, ctl := stream.WithControl(t.Context(), polltest.Patience)
	defer ctl.Release()
	cause := streamerr.New(streamerr.ClientGone, "left")
	before := len(server.Embedded())
	go func() {
		polltest.Eventually(t, "both texts are asked for", func() bool { return len(server.Embedded())-before == 2 })
		ctl.Stop(cause)
	}()
	if _, err := e.Embed(ctx, texts([]uint32{1}, []uint32{2})); !errors.Is(err, cause) {
		t.Error(err)
	}
	if got := server.AbortedIDs(); len(got) != 2 {
		t.Error(got)
	}
}

// TestRankIsSentWithEachRequest: a server without that rank is refused.
func TestRankIsSentWithEachRequest(t *testing.T) {
	t.Parallel()
	with := func(rank string) besidetest.Subject {
		s := subject(nil)
		s.New = func(o beside.Options) (besidetest.Engine, error) {
			if err := o.Rank.Set(rank); err != nil {
				return nil, err
			}
			return vllm.New(o, nil, nil)
		}
		return s
	}
	s := with("1")
	e, server := s.Start(t, besidetest.Count)
	if r := besidetest.Read(context.WithoutCancel(t.Context()), e, besidetest.Ask(2), nil); r.Err != nil || server.Asked()[0].Rank != 1 {
		t.Error(r.Err, server.Asked()[0].Rank)
	}
	s = with("2")
	refused, _ := s.Watched(t, besidetest.Start(t, s.Dialect, besidetest.Count, "").Addr)
	polltest.Eventually(t, "the problem names the ranks", func() bool {
		return strings.Contains(refused.(*vllm.Engine).Problem(), "says that it has 2 data-parallel ranks")
	})
	s = with("")
	e, server = s.Start(t, besidetest.Count)
	if r := besidetest.Read(context.WithoutCancel(t.Context()), e, besidetest.Ask(2), nil); r.Err != nil || server.Asked()[0].Rank != -1 {
		t.Error(r.Err, server.Asked()[0].Rank)
	}
}
