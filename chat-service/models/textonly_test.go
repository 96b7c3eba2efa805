package models

import (
	"strings"
	"testing"

	"github.com/whence-dev/whence/chat-service/chat"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/internal/textonly"
	"github.com/whence-dev/whence/internal/whencetiny"
)

// TestWorkerAndModelHaveFilesOrNeitherHas: words of a text are no token ids, whatever their numbers.
func TestWorkerAndModelHaveFilesOrNeitherHas(t *testing.T) {
	filed, err := chat.Load(whencetiny.FS(), "m", "")
	if err != nil {
		t.Fatal(err)
	}
	text := chat.TextOnly("m", "")
	with := &llmv1.WorkerInfo{Instance: "w", Model: "m", VocabSize: textonly.VocabSize, ContextLength: 10, ModelChecksum: filed.Checksum}
	silent := &llmv1.WorkerInfo{Instance: "w", Model: "m", VocabSize: textonly.VocabSize, ContextLength: 10}
	without := &llmv1.WorkerInfo{Instance: "w", Model: "m", VocabSize: textonly.VocabSize, ContextLength: textonly.NoLimit, ModelChecksum: textonly.Checksum}
	for name, test := range map[string]struct {
		model *chat.Model
		info  *llmv1.WorkerInfo
		says  string // "" if they fit
	}{
		"both have files":      {filed, with, ""},
		"neither has":          {text, without, ""},
		"the worker has":       {text, with, "this service has no files"},
		"the worker has ids":   {text, silent, "this service has no files"},
		"the service has":      {filed, without, "takes only text"},
		"neither, other names": {chat.TextOnly("other", ""), without, `serves the model "m"`},
	} {
		err := fits(test.model, test.info)
		if (err == nil) != (test.says == "") || err != nil && !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCardWithoutFiles(t *testing.T) {
	for name, test := range map[string]struct {
		card Card
		says string
	}{
		"whole":         {Card{Name: "m", Directory: textonly.Model, Workers: "a:1", ToolFormat: chat.ToolFormatAuto}, ""},
		"no name":       {Card{Directory: textonly.Model, Workers: "a:1"}, "--model-name"},
		"a template":    {Card{Name: "m", Directory: textonly.Model, Workers: "a:1", Template: "t"}, "no chat template"},
		"a tool format": {Card{Name: "m", Directory: textonly.Model, Workers: "a:1", ToolFormat: "hermes"}, "no --tool-format"},
		"an eos":        {Card{Name: "m", Directory: textonly.Model, Workers: "a:1", EOS: []uint32{1}}, "no eos"},
	} {
		test.card.Timers.FirstToken, test.card.Timers.Stall = DefaultFirstToken, DefaultStall
		err := test.card.Validate()
		if (err == nil) != (test.says == "") || err != nil && !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	cards, err := parse([]byte("models:\n- {name: m, directory: none, workers: 'a:1'}\n"), "/etc/whence/models.yaml", Card{})
	if err != nil || !cards[0].textOnly() {
		t.Error(cards, err)
	}
}
