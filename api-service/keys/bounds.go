package keys

import (
	"fmt"
	"slices"
	"time"

	"github.com/whence-dev/whence/api-service/quota"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// Accounts returns the accounts that a request with the key counts for: the account of the key and
// that of its tenant. A nil Entry has no accounts.
func (e *Entry) Accounts() []quota.Account {
	if e == nil {
		return nil
	}
	return []quota.Account{
		{Name: "key/" + e.ID, Whose: "API key", Limits: e.Limits},
		{Name: "tenant/" + e.Tenant, Whose: "tenant", Limits: e.shared},
	}
}

// Model refuses a model that the key may not request. A nil Entry allows all models.
func (e *Entry) Model(name string) error {
	switch {
	case e == nil || len(e.Models) == 0 || slices.Contains(e.Models, name):
		return nil
	case name == "":
		return &streamerr.Error{Reason: streamerr.Forbidden, Param: "model", Message: "the API key allows only some models; name one of them"}
	default:
		return &streamerr.Error{Reason: streamerr.Forbidden, Param: "model", Code: streamerr.CodeModelNotFound, Message: fmt.Sprintf("the API key does not allow the model %.128q", name)}
	}
}

// Sampling bounds the max_tokens of a request, which may be nil. A request for more is INVALID. A
// request without max_tokens gets the bound, or the default of its API if that is lower.
func (e *Entry) Sampling(s *llmv1.Sampling, byDefault bool) (*llmv1.Sampling, error) {
	switch {
	case e == nil || e.MaxTokens == 0:
		return s, nil
	case s == nil:
		s = &llmv1.Sampling{}
	case s.GetMaxTokens() > e.MaxTokens && byDefault:
		s.MaxTokens = nil
	case s.GetMaxTokens() > e.MaxTokens:
		err := streamerr.InvalidParam("sampling.max_tokens", "max_tokens is %d; the API key allows at most %d", s.GetMaxTokens(), e.MaxTokens)
		return nil, err.WithCode(streamerr.CodeIntegerAbove)
	}
	if s.MaxTokens == nil {
		s.MaxTokens = new(e.MaxTokens)
	}
	return s, nil
}

// Timeout bounds the timeout of a request; 0 means no timeout.
func (e *Entry) Timeout(asked time.Duration) time.Duration {
	if e == nil || e.Deadline == 0 || asked > 0 && asked <= e.Deadline {
		return asked
	}
	return e.Deadline
}
