package openai

import (
	"encoding/json"
	"testing"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
)

// TestAdaptersAreListedWithTheirModel checks that an adapter names its base model in the field
// parent, as in vLLM, and that other models lack the field.
func TestAdaptersAreListedWithTheirModel(t *testing.T) {
	var list struct{ Data []map[string]any }
	if err := json.Unmarshal(Models([]*chatv1.Model{{Id: "base"}, {Id: "legal", Parent: "base"}}), &list); err != nil {
		t.Fatal(err)
	}
	if len(list.Data) != 2 || list.Data[0]["parent"] != nil || list.Data[1]["id"] != "legal" || list.Data[1]["parent"] != "base" {
		t.Error(list.Data)
	}
}
