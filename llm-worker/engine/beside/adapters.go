package beside

import (
	"encoding/json"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/whence-dev/whence/internal/capability"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// maxAdapters bounds the names of adapters that a server may list.
const maxAdapters = 1024

// WithAdapters returns a description of the same server with the adapters that the server has
// confirmed, by lists that may overlap. The server takes requests for these adapters alone.
func (u *Upstream) WithAdapters(confirmed ...[]string) Upstream {
	with := *u
	with.adapters = slices.Concat(confirmed...)
	with.adapters = with.adapters[:min(len(with.adapters), maxAdapters)]
	with.confirms = true
	with.Capabilities = proto.CloneOf(u.Capabilities)
	with.Capabilities.Adapters = len(with.adapters) > 0
	return with
}

// checkAdapter refuses an adapter that the server would ignore, so that the model itself would answer.
func (u *Upstream) checkAdapter(name string) error {
	switch {
	case name == "":
		return nil
	case !u.Capabilities.GetAdapters():
		return capability.NoAdapters(u.Capabilities.GetUpstream(), name)
	case u.confirms && !slices.Contains(u.adapters, name):
		err := streamerr.New(streamerr.NotFound, "%.128q is an adapter, and the server that generates (%s) does not list it", name, u.Capabilities.GetUpstream()).WithCode(streamerr.CodeModelNotFound)
		err.Param = "model"
		return err
	}
	return nil
}

// LoRAPaths are the names of the adapters that an SGLang was started with: its setting lora_paths,
// which is an object keyed by names, or a list of objects, or null.
type LoRAPaths []string

// UnmarshalJSON implements json.Unmarshaler. Another form has no names: it must not hide the other
// settings of the server.
func (p *LoRAPaths) UnmarshalJSON(b []byte) error {
	*p = nil
	var byName map[string]json.RawMessage
	if json.Unmarshal(b, &byName) == nil {
		for name := range byName {
			*p = append(*p, name)
		}
		slices.Sort(*p)
		return nil
	}
	var list []json.RawMessage
	_ = json.Unmarshal(b, &list) // nil for any other form
	for _, raw := range list {
		var adapter struct {
			Name string `json:"lora_name"`
		}
		if json.Unmarshal(raw, &adapter) == nil && adapter.Name != "" {
			*p = append(*p, adapter.Name)
		}
	}
	return nil
}
