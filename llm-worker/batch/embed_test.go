package batch_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/llm-worker/batch"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/stream/streamtest"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A readingModel is a countingModel that takes one step for each token of a text. The vector of a
// text is the sum of its tokens. A text that begins with 666 fails.
type readingModel struct {
	*countingModel
	texts map[uint64][]uint32
	order []uint32 // the texts in the order of joining, by their first tokens
}

func newReading() *readingModel {
	return &readingModel{countingModel: newCounting(), texts: map[uint64][]uint32{}}
}

func (m *readingModel) CheckEmbed(ids []uint32) error {
	if len(ids) == 0 {
		return streamerr.InvalidParam("", "the text has no tokens")
	}
	return nil
}

func (m *readingModel) JoinEmbed(id uint64, ids []uint32) error {
	if err := m.Join(id, count(uint32(len(ids)))); err != nil {
		return err
	}
	m.texts[id], m.order = ids, append(m.order, ids[0])
	return nil
}

func (m *readingModel) Leave(id uint64) {
	m.countingModel.Leave(id)
	delete(m.texts, id)
}

func (m *readingModel) Step(ids []uint64, out []batch.Output) ([]batch.Output, error) {
	all, err := m.countingModel.Step(ids, nil)
	for _, o := range all {
		text := m.texts[o.ID]
		switch {
		case text == nil:
			out = append(out, o)
		case int(o.Token) < len(text):
		case text[0] == 666:
			out = append(out, batch.Output{ID: o.ID, Err: streamerr.New(streamerr.EngineFailed, "no vector")})
		default:
			sum := float32(0)
			for _, id := range text {
				sum += float32(id)
			}
			out = append(out, batch.Output{ID: o.ID, Vector: &llmv1.Embedding{Values: []float32{sum}}})
		}
	}
	return out, err
}

func texts(all ...[]uint32) *workerv1.EmbedRequest {
	req := new(workerv1.EmbedRequest)
	for _, ids := range all {
		req.Inputs = append(req.Inputs, &workerv1.TokenIds{Ids: ids})
	}
	return req
}

func TestEmbedKeepsTheContract(t *testing.T) {
	streamtest.Run(t, func(t *testing.T) streamtest.Subject[*workerv1.EmbedRequest, *workerv1.EmbedResponse] {
		m := newReading()
		l, _ := run(t, m, batch.Options{})
		return streamtest.Subject[*workerv1.EmbedRequest, *workerv1.EmbedResponse]{
			Engine: stream.Unary(l.Embed),
			Short:  func() *workerv1.EmbedRequest { return texts([]uint32{1, 2}, []uint32{3}) },
			Bad:    func() *workerv1.EmbedRequest { return texts([]uint32{1}, nil) },
			Live:   m.live,
		}
	})
}

func TestTextsTakeTurnsWithOtherStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newReading()
		l, _ := run(t, m, batch.Options{MaxRunning: 1, MaxQueued: 1})
		many := make(chan error, 1)
		go func() {
			resp, err := l.Embed(t.Context(), texts([]uint32{1, 2}, []uint32{3, 4, 5}, []uint32{6}))
			if v := resp.GetEmbeddings(); err == nil && (len(v) != 3 || v[0].GetValues()[0] != 3 || v[1].GetValues()[0] != 12 || v[2].GetValues()[0] != 6 ||
				resp.GetEnd().GetUsage().GetPromptTokens() != 6) {
				err = errors.New(resp.String())
			}
			many <- err
		}()
		synctest.Wait()
		begun := time.Now()
		if _, err := l.Embed(t.Context(), texts([]uint32{100})); err != nil { // takes the queue's last place
			t.Error(err)
		}
		if took := time.Since(begun); took > 4*time.Millisecond {
			t.Errorf("one text waited %v behind all of another request's", took)
		}
		if err := <-many; err != nil {
			t.Error(err)
		}
		if len(m.order) != 4 || m.order[1] != 100 {
			t.Errorf("the texts were read in the order %v", m.order)
		}
	})
}

func TestRequestOfManyTextsKeepsOnePlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newReading()
		l, _ := run(t, m, batch.Options{MaxRunning: 1, MaxQueued: -1})
		done := make(chan error, 1)
		go func() {
			_, err := l.Embed(t.Context(), texts([]uint32{1}, []uint32{2}, []uint32{3}, []uint32{4}))
			done <- err
		}()
		refused := 0
		for range 8 { // at steps and between them
			time.Sleep(time.Millisecond / 2)
			if _, err := l.Embed(t.Context(), texts([]uint32{9})); errors.Is(err, streamerr.Overloaded) {
				refused++
			}
		}
		if err := <-done; err != nil || refused < 7 {
			t.Errorf("%v; %d were refused meanwhile", err, refused)
		}
	})
}

func TestStopBetweenTextsLeavesNothing(t *testing.T) {
	for stopAt := range 12 {
		synctest.Test(t, func(t *testing.T) {
			m := newReading()
			l, _ := run(t, m, batch.Options{MaxRunning: 2})
			ctx, ctl := stream.Detached(t.Context(), time.Second)
			defer ctl.Release()
			cause := errors.New("enough")
			time.AfterFunc(time.Duration(stopAt)*time.Millisecond/2, func() { ctl.Stop(cause) })
			if _, err := l.Embed(ctx, texts([]uint32{1}, []uint32{2, 2}, []uint32{3}, []uint32{4, 4, 4}, []uint32{5})); !errors.Is(err, cause) {
				t.Error(err)
			}
			synctest.Wait()
			if load := l.Load(); m.live() != 0 || len(m.texts) != 0 || load.GetRunning() != 0 || load.GetQueued() != 0 {
				t.Error(m.live(), load)
			}
			if _, err := l.Embed(t.Context(), texts([]uint32{1})); err != nil {
				t.Error("the loop does not continue:", err)
			}
		})
	}
}

func TestTextThatFailsEndsOnlyItsRequest(t *testing.T) {
	l, _ := run(t, newReading(), batch.Options{})
	other := make(chan error, 1)
	go func() {
		_, err := l.Embed(t.Context(), texts([]uint32{1, 1, 1}, []uint32{2, 2}))
		other <- err
	}()
	if _, err := l.Embed(t.Context(), texts([]uint32{1}, []uint32{666}, []uint32{3})); !errors.Is(err, streamerr.EngineFailed) {
		t.Error(err)
	}
	if err := <-other; err != nil {
		t.Error(err)
	}
	one := uint32(1)
	for param, req := range map[string]*workerv1.EmbedRequest{
		"inputs": texts(), "inputs[1]": texts([]uint32{1}, nil), "dimensions": {Inputs: texts([]uint32{1}).GetInputs(), Dimensions: &one},
	} {
		if _, err := l.Embed(t.Context(), req); streamerr.As(err).Reason != streamerr.Invalid || streamerr.As(err).Param != param {
			t.Errorf("%s: %v", param, err)
		}
	}
}

func TestTextsYieldTheirRoomToAWaitingStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // a queue that is never woken is a deadlock here
		m := newReading()
		m.room = 1 // there is no room for both the text and the stream
		l, _ := run(t, m, batch.Options{})
		embedded := make(chan error, 1)
		go func() {
			resp, err := l.Embed(t.Context(), texts([]uint32{1, 2, 3}, []uint32{4, 5}, []uint32{6}))
			if err == nil && len(resp.GetEmbeddings()) != 3 {
				err = errors.New(resp.String())
			}
			embedded <- err
		}()
		synctest.Wait()
		if tokens, _, _, err := read(t.Context(), l, count(5), nil); err != nil || len(tokens) != 5 {
			t.Error(tokens, err)
		}
		if err := <-embedded; err != nil {
			t.Error(err)
		}
		if m.live() != 0 {
			t.Errorf("%d sequences are left in the model", m.live())
		}
	})
}
