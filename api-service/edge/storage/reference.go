package storage

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"

	"github.com/whence-dev/whence/api-service/access"
	"github.com/whence-dev/whence/api-service/responses"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// maxOpened bounds the stored responses that the references of one request open.
const maxOpened = 256

// items returns the items that references stand for, by their ids: from memory, which may be nil, and
// from stored responses of the caller. A reference whose item nobody has is missing in the result. A
// conversation has all earlier items, so a later response may have the item of one that is gone.
func (s *Service) items(ctx context.Context, caller access.Caller, references []string, memory Memory) (map[string]json.RawMessage, error) {
	found := map[string]json.RawMessage{}
	opened := map[string]bool{}
	for _, id := range slices.Backward(references) {
		if found[id] != nil {
			continue
		}
		if memory != nil {
			if item := memory.Item(id); item != nil {
				found[id] = item
				continue
			}
		}
		of := responses.OfItem(id)
		if of == "" || opened[of] || len(opened) == maxOpened {
			continue
		}
		opened[of] = true
		items, err := s.itemsOf(ctx, caller, of)
		if err != nil {
			return nil, err
		}
		maps.Copy(found, items)
	}
	wanted := map[string]bool{}
	for _, id := range references {
		wanted[id] = true
	}
	maps.DeleteFunc(found, func(id string, _ json.RawMessage) bool { return !wanted[id] })
	return found, nil
}

// itemsOf returns the items of the conversation up to a stored response, by their ids, or none if the
// caller has no such response.
func (s *Service) itemsOf(ctx context.Context, caller access.Caller, id string) (map[string]json.RawMessage, error) {
	in, r, err := s.ending(ctx, caller, id)
	switch {
	case err == nil:
		defer in.Close()
	case errors.Is(missing(id, err), streamerr.NotFound):
		return nil, nil
	default:
		return nil, err
	}
	all, err := r.Conversation()
	if err != nil {
		return nil, err
	}
	items, ids, err := identified(in.Head().ID, all)
	found := make(map[string]json.RawMessage, len(ids))
	for i, id := range ids {
		found[id] = items[i]
	}
	return found, err
}
