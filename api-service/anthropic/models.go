package anthropic

import (
	"time"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
)

// A model is an element of the list of models.
type model struct {
	Type      string `json:"type"`
	ID        string `json:"id"`
	Name      string `json:"display_name"`
	Created   string `json:"created_at"`
	MaxInput  uint32 `json:"max_input_tokens"`
	MaxTokens uint32 `json:"max_tokens"` // of an answer: the context is shared with the prompt
}

func modelOf(m *chatv1.Model) model {
	return model{"model", m.GetId(), m.GetId(), time.Unix(m.GetCreated(), 0).UTC().Format(time.RFC3339), m.GetContextLength(), m.GetContextLength()}
}

// Models returns the body of GET /v1/models. The list has one page.
func Models(models []*chatv1.Model) []byte {
	list := struct {
		Data  []model `json:"data"`
		More  bool    `json:"has_more"`
		First *string `json:"first_id"`
		Last  *string `json:"last_id"`
	}{Data: make([]model, 0, len(models))}
	for _, m := range models {
		list.Data = append(list.Data, modelOf(m))
	}
	if n := len(list.Data); n > 0 {
		list.First, list.Last = &list.Data[0].ID, &list.Data[n-1].ID
	}
	return marshal(list)
}

// Model returns the body of GET /v1/models/{id}.
func Model(m *chatv1.Model) []byte { return marshal(modelOf(m)) }
