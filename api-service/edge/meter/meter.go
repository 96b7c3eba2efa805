// Package meter applies the limits of API keys and tenants to requests.
package meter

import (
	"context"

	"github.com/cloudwego/hertz/pkg/app"

	"github.com/whence-dev/whence/api-service/edge/exchange"
	"github.com/whence-dev/whence/api-service/quota"
	"github.com/whence-dev/whence/pkg/ledger"
)

// A Meter admits requests within the limits of their keys.
type Meter struct {
	Book *quota.Book
}

// Enter counts a request and its stream, or refuses the request. It adds the headers that report
// the rest of the limits. The caller ends the grant, which may be nil.
func (m *Meter) Enter(ctx context.Context, c *app.RequestContext) (*quota.Grant, error) {
	grant, err := m.Book.Admit(ctx, exchange.Caller(ctx).Entry.Accounts())
	grant.Headers(c.Header)
	if err != nil {
		return nil, err
	}
	return grant, nil
}

// Count counts a request without a stream, or refuses it.
func (m *Meter) Count(ctx context.Context, c *app.RequestContext) error {
	grant, err := m.Enter(ctx, c)
	grant.End(0)
	return err
}

// Settle ends the grant of a stream, and charges the tokens of its prompt and its answer.
func Settle(grant *quota.Grant, record *ledger.Record) {
	if grant == nil {
		return
	}
	used := ledger.TokensOf(record.Proto())
	grant.End(int(used.Prompt) + int(used.Generated))
}
