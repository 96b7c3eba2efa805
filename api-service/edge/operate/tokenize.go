package operate

import (
	"context"

	"github.com/cloudwego/hertz/pkg/app"

	"github.com/whence-dev/whence/api-service/anthropic"
	"github.com/whence-dev/whence/api-service/edge/exchange"
	"github.com/whence-dev/whence/api-service/openai/conversation"
	"github.com/whence-dev/whence/api-service/tokens"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// tokenize handles POST /tokenize.
func (o *Operator) tokenize(ctx context.Context, c *app.RequestContext) {
	o.convert(ctx, c, func(body []byte) ([]byte, error) {
		req, err := exchange.Parse(o.Desk, c, body, tokens.ParseTokenize)
		if err == nil {
			err = exchange.Caller(ctx).Entry.Model(req.GetModel())
		}
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(ctx, AskTimeout)
		defer cancel()
		resp, err := o.Chats.Tokenize(ctx, req)
		if err != nil {
			return nil, exchange.Outward(conversation.Param, streamerr.As(err))
		}
		return tokens.Tokenized(resp), nil
	})
}

// detokenize handles POST /detokenize.
func (o *Operator) detokenize(ctx context.Context, c *app.RequestContext) {
	o.convert(ctx, c, func(body []byte) ([]byte, error) {
		req, err := exchange.Parse(o.Desk, c, body, tokens.ParseDetokenize)
		if err == nil {
			err = exchange.Caller(ctx).Entry.Model(req.GetModel())
		}
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(ctx, AskTimeout)
		defer cancel()
		resp, err := o.Chats.Detokenize(ctx, req)
		if err != nil {
			return nil, err
		}
		return tokens.Detokenized(resp), nil
	})
}

// countTokens handles POST /v1/messages/count_tokens.
func (o *Operator) countTokens(ctx context.Context, c *app.RequestContext) {
	o.convert(ctx, c, func(body []byte) ([]byte, error) {
		req, err := exchange.Parse(o.Desk, c, body, anthropic.ParseCount)
		if err == nil {
			err = exchange.Caller(ctx).Entry.Model(req.Request.GetModel())
		}
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(ctx, AskTimeout)
		defer cancel()
		if len(req.Images) > 0 {
			takes, err := o.Chats.TakesImages(ctx, req.Request.GetModel())
			if err == nil {
				err = req.CheckImages(takes)
			}
			if err != nil {
				return nil, err
			}
		}
		resp, err := o.Chats.Tokenize(ctx, req.Request)
		if err != nil {
			return nil, exchange.Outward(req.Param, streamerr.As(err))
		}
		return anthropic.Counted(resp), nil
	})
}

// convert answers a request with the result of to for its body.
func (o *Operator) convert(ctx context.Context, c *app.RequestContext, to func(body []byte) ([]byte, error)) {
	exchange.ID(c)
	body, err := o.Body(c, exchange.Caller(ctx).Owner)
	if err == nil {
		err = o.Meter.Count(ctx, c)
	}
	if err == nil {
		body, err = to(body)
	}
	if err != nil {
		o.Refuse(c, err)
		return
	}
	exchange.JSON(c, body)
}
