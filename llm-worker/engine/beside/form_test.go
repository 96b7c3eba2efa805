package beside

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/capability"
	"github.com/whence-dev/whence/llm-worker/engine/features"
	"github.com/whence-dev/whence/llm-worker/sample"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// An askedCall is a call whose answer is known.
type askedCall struct {
	ids []uint32
	err error
}

func (c *askedCall) Open(context.Context) error { return c.err }
func (c *askedCall) Next() ([]uint32, *llmv1.End, error) {
	return c.ids, new(llmv1.End), nil
}
func (c *askedCall) Stop() bool { return true }

// A scriptedServer answers the requests of a trial.
type scriptedServer struct {
	refuses   []string // fields
	breaks    []string // fields whose requests break their connection
	kills     []string // fields whose requests kill the server
	dead      bool
	together  bool // it refuses more than one field
	void      bool // it ignores guides
	requested [][]string
}

func (s *scriptedServer) ask(_ context.Context, req *workerv1.TokenRequest) (Call, error) {
	fields := slices.DeleteFunc(capability.RequestedFields(req.GetSampling()), func(f string) bool {
		return f == "max_tokens" || f == "temperature" && req.GetSampling().GetTemperature() == 0
	})
	s.requested = append(s.requested, fields)
	has := func(f string) bool { return slices.Contains(fields, f) }
	switch {
	case s.dead || slices.ContainsFunc(s.kills, has):
		s.dead = true
		return &askedCall{err: Lost(errors.New("EOF"), "broke the connection")}, nil
	case slices.ContainsFunc(s.breaks, has):
		return &askedCall{err: Lost(errors.New("EOF"), "broke the connection")}, nil
	case slices.ContainsFunc(s.refuses, has) || s.together && len(fields) > 1 && !slices.Equal(fields, []string{"logprobs", "prompt_logprobs"}): // these need each other
		return &askedCall{err: Fail(streamerr.Invalid, nil, "it does not know a field")}, nil
	case req.GetSampling().GetGuide() != nil && !s.void:
		return &askedCall{ids: []uint32{7}}, nil
	default:
		return &askedCall{ids: []uint32{1}}, nil
	}
}

func (s *scriptedServer) trial(can *llmv1.Capabilities) *FormTrial {
	return &FormTrial{Upstream: &Upstream{Capabilities: can}, Ask: s.ask, Prompt: []uint32{5}, Text: func(ids []uint32) string {
		if ids[0] == 7 {
			return ` "a"`
		}
		return "Sure"
	}}
}

func everyField() *llmv1.Capabilities {
	return &llmv1.Capabilities{Sampling: sample.Fields(), Guides: llmv1.GuideSupport_GUIDE_SUPPORT_SCHEMA}
}

// TestEveryFieldIsTried fails for a new field of Sampling that trials do not send.
func TestEveryFieldIsTried(t *testing.T) {
	s := new(scriptedServer)
	trial := s.trial(everyField())
	if err := trial.Try(t.Context()); err != nil || len(trial.Upstream.Notes) > 0 {
		t.Fatal(err, trial.Upstream.Notes)
	}
	tried := slices.Concat(s.requested...)
	for _, row := range features.Table() {
		for _, field := range row.Sampling(row.Reported...) {
			if row.Upstream != "" && !slices.Contains(tried, field) && field != "max_tokens" && field != "temperature" {
				t.Errorf("%s, a field of %s, is not tried", field, row.Title)
			}
		}
	}
	if len(s.requested) != 2 {
		t.Errorf("a server that takes everything was asked %d times: %v", len(s.requested), s.requested)
	}
}

func TestRefusedFieldsAreFound(t *testing.T) {
	for name, test := range map[string]struct {
		server scriptedServer
		gone   string // fields
		note   string
		asked  int // at most
	}{
		"one":             {scriptedServer{refuses: []string{"top_k"}}, "top_k", "refuses top_k, so", 15},
		"three":           {scriptedServer{refuses: []string{"top_k", "seed", "logprobs"}}, "top_k seed logprobs prompt_logprobs", "refuses top_k, seed, logprobs, prompt_logprobs, so", 15},
		"the combination": {scriptedServer{together: true}, "", "together", 15},
		"guides":          {scriptedServer{refuses: []string{"guide"}}, "guide", "it does not know a field", 2},
		"guides, broken":  {scriptedServer{breaks: []string{"guide"}}, "guide", "broke the connection", 3},
		"guides, ignored": {scriptedServer{void: true}, "guide", `answered "Sure"`, 2},
	} {
		can := everyField()
		trial := test.server.trial(can)
		err := trial.Try(t.Context())
		gone := slices.DeleteFunc(sample.Fields(), func(f string) bool { return slices.Contains(can.GetSampling(), f) })
		if err != nil || strings.Join(gone, " ") != test.gone || len(trial.Upstream.Notes) != 1 || !strings.Contains(trial.Upstream.Notes[0], test.note) || len(test.server.requested) > test.asked {
			t.Errorf("%s: %v, without %v after %d requests; the operator reads %q", name, err, gone, len(test.server.requested), trial.Upstream.Notes)
		}
	}
}

// TestServerThatFailsInItsTrialIsNotTaught: a lost connection says nothing about the field.
func TestServerThatFailsInItsTrialIsNotTaught(t *testing.T) {
	can := everyField()
	s := &scriptedServer{refuses: []string{"top_p"}, kills: []string{"seed"}}
	if err := s.trial(can).Try(t.Context()); !errors.Is(err, streamerr.PeerLost) || len(can.GetSampling()) != len(sample.Fields()) {
		t.Error(err, can.GetSampling())
	}
}

// TestLogprobsAreTriedAlone where they count only beside fields that change no probabilities.
func TestLogprobsAreTriedAlone(t *testing.T) {
	can := everyField()
	can.SampledLogprobs = true
	s := new(scriptedServer)
	if err := s.trial(can).Try(t.Context()); err != nil || !slices.ContainsFunc(s.requested, func(f []string) bool { return slices.Equal(f, []string{"logprobs"}) }) {
		t.Error(err, s.requested)
	}
}

func TestAnswerToAGuide(t *testing.T) {
	for got, want := range map[string]bool{`"a"`: true, ` "`: true, "\n \n": true, `"a" `: true, "": false, "Sure": false, `"b"`: false, "a": false} {
		if follows(got, `"a"`) != want {
			t.Errorf("%q follows the guide: %t", got, !want)
		}
	}
}
