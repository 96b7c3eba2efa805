package openai_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/stream/streamtest"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// vectors answers with a vector (3, 4, n) for the n-th input, the last one first. It takes only texts, or
// only ids.
func vectors(texts bool, seen func(asked map[string]any)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var asked map[string]any
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		inputs := asked["input"].([]any)
		if _, isText := inputs[0].(string); isText != texts {
			http.Error(w, `{"error":{"message":"wrong form of input"}}`, http.StatusBadRequest)
			return
		}
		if seen != nil {
			seen(asked)
		}
		var data []string
		for i := len(inputs) - 1; i >= 0; i-- {
			data = append(data, fmt.Sprintf(`{"object":"embedding","index":%d,"embedding":[3,4,%d]}`, i, i))
		}
		fmt.Fprintf(w, `{"object":"list","data":[%s],"usage":{"prompt_tokens":11,"total_tokens":11}}`, strings.Join(data, ","))
	}
}

func inputs(ids ...[]uint32) *workerv1.EmbedRequest {
	req := &workerv1.EmbedRequest{}
	for _, i := range ids {
		req.Inputs = append(req.Inputs, &workerv1.TokenIds{Ids: i})
	}
	return req
}

func TestVectorsComeFromTheUpstream(t *testing.T) {
	for name, texts := range map[string]bool{"ids": false, "texts": true} {
		t.Run(name, func(t *testing.T) {
			asked := make(chan map[string]any, 10)
			f := newFake(t, counting, func(f *fake) { f.embed = vectors(texts, func(a map[string]any) { asked <- a }) })
			e := engineOn(t, f.URL)
			if !e.Embeds() {
				t.Fatal("it is not known that the upstream embeds")
			}
			<-asked // the request of the trial
			hello := tinyModel(t).Tokenizer.Encode("hello", true)
			req := inputs(hello, hello)
			req.Dimensions = proto.Uint32(3)
			resp, err := e.Embed(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			got := <-asked
			want := any("hello")
			if !texts {
				want = []any{}
				for _, id := range hello {
					want = append(want.([]any), float64(id))
				}
			}
			if fmt.Sprint(got["input"]) != fmt.Sprint([]any{want, want}) || got["dimensions"] != 3.0 || got["model"] != "served" {
				t.Error(got)
			}
			if v := resp.GetEmbeddings(); len(v) != 2 || v[0].GetValues()[0] != 0.6 || v[0].GetValues()[1] != 0.8 || v[1].GetValues()[2] == 0 {
				t.Error(v)
			}
			if resp.GetEnd().GetUsage().GetPromptTokens() != 11 || resp.GetModel() != "tiny" {
				t.Error(resp)
			}
			for _, bad := range []*workerv1.EmbedRequest{inputs(hello, nil), inputs(hello, []uint32{1 << 30})} {
				if _, err := e.Embed(t.Context(), bad); streamerr.As(err).Param != "inputs[1]" {
					t.Error(err)
				}
			}
		})
	}
}

func TestVectorsOfAnUpstreamKeepTheContract(t *testing.T) {
	streamtest.Run(t, func(t *testing.T) streamtest.Subject[*workerv1.EmbedRequest, *workerv1.EmbedResponse] {
		e := engineOn(t, newFake(t, counting, func(f *fake) { f.embed = vectors(false, nil) }).URL)
		return streamtest.Subject[*workerv1.EmbedRequest, *workerv1.EmbedResponse]{
			Engine: stream.Unary(e.Embed),
			Short:  func() *workerv1.EmbedRequest { return inputs([]uint32{1, 2}, []uint32{3}) },
			Bad:    func() *workerv1.EmbedRequest { return inputs(nil) },
			Live:   func() int { return int(e.Load().GetRunning()) },
		}
	})
}

func TestEmbeddingsAreRefusedIfTheUpstreamHasNone(t *testing.T) {
	e := engineOn(t, newFake(t, counting).URL)
	if e.Embeds() {
		t.Error("it answers 404")
	}
	if _, err := e.Embed(t.Context(), inputs([]uint32{1})); streamerr.As(err).Reason != streamerr.Invalid || streamerr.As(err).Param != "model" {
		t.Error(err)
	}
}

func TestInvalidVectorsAreFailuresOfTheEngine(t *testing.T) {
	answer := make(chan string, 1)
	f := newFake(t, counting, func(f *fake) {
		known := vectors(false, nil)
		f.embed = func(w http.ResponseWriter, r *http.Request) {
			select {
			case a := <-answer:
				fmt.Fprint(w, a)
			default:
				known(w, r)
			}
		}
	})
	e := engineOn(t, f.URL)
	for _, a := range []string{
		"", "[]", `{"data":[]}`, `{"data":[{"index":0,"embedding":[1]},{"index":0,"embedding":[1]}]}`, `{"data":[{"index":1,"embedding":[1]}]}`,
		`{"data":[{"index":0,"embedding":[1]},{"index":1,"embedding":[1,2]}]}`, `{"data":[{"index":0,"embedding":[1e39]}]}`, `{"data":[{"index":-1,"embedding":[1]}]}`, `{"data":[{"index":0,"embedding":[]}]}`, `{"data":[{"index":0,"embedding":[0,0]}]}`, `{"data":[{"index":0,"embedding":"b64"}]}`,
	} {
		answer <- a
		if _, err := e.Embed(t.Context(), inputs([]uint32{1})); !errors.Is(err, streamerr.EngineFailed) || streamerr.As(err).Path.Origin() != "engine" {
			t.Errorf("%s: %v", a, err)
		}
	}
}

func TestStopClosesTheConnectionOfAnEmbedding(t *testing.T) {
	closed, asked := make(chan struct{}), make(chan struct{})
	first := true
	f := newFake(t, counting, func(f *fake) {
		known := vectors(false, nil)
		f.embed = func(w http.ResponseWriter, r *http.Request) {
			if first {
				first = false
				known(w, r)
				return
			}
			close(asked)
			var body map[string]any
			_ = json.NewDecoder(r.Body).Decode(&body) // the server notices a closed connection only after it has read the body
			<-r.Context().Done()
			close(closed)
		}
	})
	e := engineOn(t, f.URL)
	ctx, ctl := stream.Detached(t.Context(), time.Second)
	defer ctl.Release()
	cause := errors.New("enough")
	go func() {
		<-asked
		ctl.Stop(cause)
	}()
	if _, err := e.Embed(ctx, inputs([]uint32{1})); !errors.Is(err, cause) {
		t.Error(err)
	}
	polltest.Receive(t, "the connection is closed", closed)
}
