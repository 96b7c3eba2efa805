package edge

import (
	"context"
	"time"

	"github.com/cloudwego/hertz/pkg/app"

	"github.com/whence-dev/whence/api-service/access"
	"github.com/whence-dev/whence/api-service/call"
	"github.com/whence-dev/whence/api-service/connection"
	"github.com/whence-dev/whence/api-service/edge/chats"
	"github.com/whence-dev/whence/api-service/edge/clientconn"
	"github.com/whence-dev/whence/api-service/edge/exchange"
	"github.com/whence-dev/whence/api-service/extent"
	"github.com/whence-dev/whence/api-service/openai"
	"github.com/whence-dev/whence/api-service/strict"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/methods"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// openAIEmbeddings parses a body of POST /v1/embeddings.
func openAIEmbeddings(body []byte, as *strict.Reading) (*call.Embeddings, error) {
	in, err := openai.ParseEmbeddings(body, as)
	if err != nil {
		return nil, err
	}
	return in.Call(), nil
}

// openAIRerank parses a body of POST /v1/rerank.
func openAIRerank(body []byte, as *strict.Reading) (*call.Scores, error) {
	in, err := openai.ParseRerank(body, as)
	if err != nil {
		return nil, err
	}
	return in.Call(), nil
}

// openAIScore parses a body of POST /v1/score.
func openAIScore(body []byte, as *strict.Reading) (*call.Scores, error) {
	in, err := openai.ParseScore(body, as)
	if err != nil {
		return nil, err
	}
	return in.Call(), nil
}

// embeddings returns the handler of requests for vectors.
func (e *Edge) embeddings(parse func(body []byte, in *strict.Reading) (*call.Embeddings, error)) app.HandlerFunc {
	return pooled(e, methods.ChatEmbeddings, parse, func() chats.EmbedEngine { return e.chats.Embed }, func(req *chatv1.EmbeddingsRequest) (*string, **llmv1.Claim) {
		return &req.StreamId, &req.Claim
	})
}

// scores returns the handler of requests for the relevance of documents.
func (e *Edge) scores(parse func(body []byte, in *strict.Reading) (*call.Scores, error)) app.HandlerFunc {
	return pooled(e, methods.ChatScore, parse, func() chats.ScoreEngine { return e.chats.Score }, func(req *chatv1.ScoreRequest) (*string, **llmv1.Claim) {
		return &req.StreamId, &req.Claim
	})
}

// pooled returns the handler of requests whose answer is one item. engine returns the engine of the
// chat-service's method, and fields the fields of a request that the edge sets.
func pooled[Req interface{ GetModel() string }, In, Out any](e *Edge, method *rpc.Method[Req, In, Out], parse func(body []byte, in *strict.Reading) (*call.Pooling[Req, *Out], error),
	engine func() stream.Engine[Req, *Out], fields func(Req) (id *string, claim **llmv1.Claim)) app.HandlerFunc {
	return func(conn context.Context, c *app.RequestContext) {
		as := exchange.StreamID(conn, c)
		in, _, err := read(conn, e, c, parse)
		if err != nil {
			e.desk.Refuse(c, err)
			return
		}
		id, claim := fields(in.Request)
		if err := permitPooled(c, exchange.Caller(conn), in.Request.GetModel(), &in.Timeout, claim); err != nil {
			e.desk.Refuse(c, err)
			return
		}
		*id = as
		ctx, end, err := e.count(exchange.Traced(conn, c), c, id, *claim)
		if err != nil {
			e.desk.Refuse(c, err)
			return
		}
		defer end()
		ctx = chats.WithRename(ctx, func() bool {
			from := *id
			*id = exchange.Rename(conn, c, from)
			e.hop.Live.Rename(from, *id)
			stream.Rename(ctx, *id)
			ledger.Of(ctx).Rename(*id)
			return true
		})
		answerOnce(ctx, conn, c, e, method, engine(), in)
	}
}

// permitPooled completes a caller's request from the headers of c and the caller's key. It refuses
// requests that the key does not allow.
func permitPooled(c *app.RequestContext, caller access.Caller, model string, timeout *time.Duration, claim **llmv1.Claim) (err error) {
	if *timeout, err = exchange.Timeout(c, *timeout); err != nil {
		return err
	}
	if *claim, err = caller.Claim((*claim).GetTier()); err != nil {
		return err
	}
	*timeout = caller.Entry.Timeout(*timeout)
	return caller.Entry.Model(model)
}

// answerOnce answers a request with one item: a stream of one item. The stream ends when its client leaves,
// whatever the policy for other streams, because its result cannot be read later.
func answerOnce[Req, In, Out any](ctx, conn context.Context, c *app.RequestContext, e *Edge, method *rpc.Method[Req, In, Out], engine stream.Engine[Req, *Out], in *call.Pooling[Req, *Out]) {
	control := stream.ControlOf(ctx)
	leave := func(cause *streamerr.Error) {
		ledger.Of(ctx).Left(extent.Nothing)
		control.Stop(cause)
	}
	client := clientconn.Take(c)
	defer client.GiveBack()
	client.Bound(e.bounds(), leave)
	client.EndWith(ctx)
	defer connection.AfterLeft(conn, func() { leave(clientconn.Left(conn)) })()
	var body []byte
	o := rpc.Drive(rpc.WithDeadline(ctx, in.Timeout), e.hop, method, engine, in.Request, func(out *Out) error {
		body = in.Answer(out)
		ledger.Of(ctx).OutBytes(len(body))
		return nil
	})
	if o.Err != nil {
		exchange.Failed(ctx, exchange.Form(c), client, in.Param, o)
		return
	}
	exchange.Completed(ctx, client, body, o)
}
