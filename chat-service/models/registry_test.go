package models

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/whence-dev/whence/chat-service/chat"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/internal/whencetiny"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/stream/streamtest"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func TestRequestsFindModelsByNameAndAlias(t *testing.T) {
	a, b := work(t, "w/a", "a", nil), work(t, "w/b", "b", nil)
	r, j := open(t)
	first, second := card("b", b), card("a", a)
	first.Aliases = []string{"default", "bee"}
	set(t, r, first, second)
	healthy(t, r, 2)
	polltest.Eventually(t, "the registry is healthy", j.healthy.Load)
	for name, of := range map[string]*worker{"a": a, "b": b, "bee": b, "default": b} {
		if n, err := ask(t, r, name, 3, nil); err != nil || n != 3 || of.last().GetModel() != of.info.GetModel() {
			t.Errorf("%s: %d tokens, %v", name, n, err)
		}
	}
	for name, want := range map[string]string{"c": `the model "c" does not exist; there is "a", "b"`, "": `model is missing; there is "a", "b"`} {
		if _, err := ask(t, r, name, 3, nil); err == nil || streamerr.As(err).Text() != want || streamerr.As(err).Param != "model" {
			t.Errorf("%q: %v", name, err)
		}
	}
	list := r.Models()
	if len(list) != 2 || list[0].GetId() != "a" || list[1].GetId() != "b" || !slices.Equal(list[1].GetAliases(), first.Aliases) {
		t.Fatal(list)
	}
	if m := list[0]; m.GetHealthyWorkers() != 1 || m.GetKnownWorkers() != 1 || m.GetModelChecksum() != tinySum(t) || m.GetContextLength() == 0 || strings.Join(m.GetSampling(), " ") != "max_tokens seed stop_token_ids temperature" {
		t.Error(m)
	}
	if all := r.Workers(); len(all) != 2 || all[0].GetModel() != "a" || all[1].GetModel() != "b" {
		t.Error(all)
	}
}

// Requests for an adapter go to workers whose engines have adapters, under the adapter's name.
func TestRequestsNameAdaptersLikeModels(t *testing.T) {
	with := work(t, "w/with", "base", func(i *llmv1.WorkerInfo) { i.Capabilities.Adapters = true })
	without := work(t, "w/without", "base", nil)
	r, _ := open(t)
	c := card("base", with, without)
	c.Adapters = []string{"legal", "medical"}
	set(t, r, c)
	healthy(t, r, 2)
	for range 4 {
		if _, err := ask(t, r, "legal", 3, nil); err != nil {
			t.Fatal(err)
		}
	}
	if got := with.last(); got.GetAdapter() != "legal" || got.GetModel() != "base" {
		t.Errorf("the worker was asked for adapter %q of %q", got.GetAdapter(), got.GetModel())
	}
	without.mu.Lock()
	if n := len(without.asked); n > 0 {
		t.Errorf("a worker without adapters got %d requests for one", n)
	}
	without.mu.Unlock()
	if _, err := ask(t, r, "tax", 3, nil); streamerr.As(err).Reason != streamerr.NotFound {
		t.Errorf("an unknown adapter: %v", err)
	}
	list := r.Models()
	if len(list) != 3 || list[0].GetParent() != "" || list[1].GetId() != "legal" || list[1].GetParent() != "base" || list[2].GetId() != "medical" || list[2].GetContextLength() != list[0].GetContextLength() {
		t.Error(list)
	}
	only := card("base", without)
	only.Adapters = c.Adapters
	set(t, r, only)
	healthy(t, r, 1)
	if _, err := ask(t, r, "legal", 3, nil); streamerr.As(err).Reason != streamerr.Invalid || streamerr.As(err).Param != "model" || !strings.Contains(err.Error(), "adapter") {
		t.Errorf("no worker has adapters: %v", err)
	}
}

func TestWorkersWithAnotherTokenizerAreRefused(t *testing.T) {
	same := work(t, "w/same", "m", func(i *llmv1.WorkerInfo) { i.ModelChecksum = tinySum(t) })
	unknown := work(t, "w/unknown", "m", nil)
	newer := work(t, "w/newer", "m", func(i *llmv1.WorkerInfo) { i.ModelChecksum = "2:ff" })
	other := work(t, "w/other", "m", func(i *llmv1.WorkerInfo) { i.ModelChecksum = "1:ff" })
	silent := work(t, "w/silent", "m", func(i *llmv1.WorkerInfo) { i.ContextLength = 0 })
	small := work(t, "w/small", "m", func(i *llmv1.WorkerInfo) { i.VocabSize = 7 })
	wrong := work(t, "w/wrong", "n", nil)
	r, j := open(t)
	set(t, r, card("m", same, unknown, newer, other, silent, small, wrong))
	polltest.Eventually(t, "all were asked", func() bool {
		return j.Count("worker is refused") == 4 && j.Count("worker is healthy") == 3 && j.Count("worker does not report its tokenizer") > 0
	})
	for _, line := range []string{"w/other has another tokenizer", "w/silent does not report the length of its context", "w/small has a vocabulary of 7", `w/wrong serves the model \"n\"`} {
		if j.Count(line) != 1 {
			t.Error(line, "is missing:", j)
		}
	}
	if j.Count("worker does not report its tokenizer") != 1 {
		t.Error(j)
	}
}

// TestWorkerIsFoundByAnAlias: a worker in front of a server has the server's name, acme/m, and a card that names
// the files of acme/m has the last part.
func TestWorkerIsFoundByAnAlias(t *testing.T) {
	w := work(t, "w/a", "acme/m", func(i *llmv1.WorkerInfo) { i.Aliases = []string{"m"} })
	r, _ := open(t)
	c := card("m", w)
	c.Aliases = []string{"acme/m"}
	set(t, r, c)
	healthy(t, r, 1)
	for _, name := range []string{"m", "acme/m"} {
		if n, err := ask(t, r, name, 3, nil); err != nil || n != 3 || w.last().GetModel() != "m" {
			t.Errorf("%s: %d tokens, %v, of %q", name, n, err, w.last().GetModel())
		}
	}
}

// TestOtherTemplateOfAServerIsTold: once, and not if only the token that begins every text is missing.
func TestOtherTemplateOfAServerIsTold(t *testing.T) {
	const greeting = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
	same := work(t, "w/same", "m", func(i *llmv1.WorkerInfo) { i.Rendered = greeting })
	other := work(t, "w/other", "m", func(i *llmv1.WorkerInfo) { i.Rendered = strings.Replace(greeting, "user", "human", 1) })
	r, j := open(t)
	c := card("m", same, other)
	c.Template = filepath.Join(t.TempDir(), "t.jinja")
	write(t, c.Template, "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n")
	set(t, r, c)
	healthy(t, r, 2)
	const line = "renders conversations otherwise"
	polltest.Eventually(t, "both were probed again", func() bool { return same.described.Load() > 2 && other.described.Load() > 2 })
	if j.Count(line) != 1 || j.Count("worker=w/other server=\"<|im_start|>human") != 1 {
		t.Error(j)
	}
}

func TestInvalidCardsChangeNothing(t *testing.T) {
	a := work(t, "w/a", "a", nil)
	r, _ := open(t)
	set(t, r, card("a", a))
	healthy(t, r, 1)
	broken := directory(t)
	write(t, filepath.Join(broken, "tokenizer.json"), "{")
	for want, bad := range map[string][]Card{
		"no models":                      {},
		"the name \"a\" is used twice":   {card("a", a), card("a", a)},
		"the name \"x\" is used twice":   {card("a", a), {Name: "x", Workers: "h:1", Aliases: []string{"x"}}},
		"model copy: tokenizer.json":     {card("b", a), {Directory: broken, Workers: "h:1"}},
		"model gone: open config.json":   {card("b", a), {Directory: "/nowhere/gone", Workers: "h:1"}},
		"it must not be above":           {card("b", a), {Name: "x", Workers: "h:1", Context: 1 << 20}},
		"the vocabulary has":             {card("b", a), {Name: "x", Workers: "h:1", EOS: []uint32{1 << 20}}},
		"model x: open /nowhere/t.jinja": {card("b", a), {Name: "x", Workers: "h:1", Template: "/nowhere/t.jinja"}},
		"model x: workers: ":             {card("b", a), {Name: "x", Workers: "h"}},
	} {
		if err := r.Set(bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if list := r.Models(); len(list) != 1 || list[0].GetId() != "a" {
		t.Error(list)
	}
	if n, err := ask(t, r, "a", 3, nil); err != nil || n != 3 {
		t.Error(n, err)
	}
}

func TestRemovedModelFinishesItsStreams(t *testing.T) {
	a, b := work(t, "w/a", "a", nil), work(t, "w/b", "b", nil)
	r, j := open(t)
	set(t, r, card("a", a), card("b", b))
	healthy(t, r, 2)
	n, err := ask(t, r, "a", 200, func(n int) {
		if n != 20 {
			return
		}
		set(t, r, card("b", b))
		if _, err := ask(t, r, "a", 3, nil); streamerr.As(err).Reason != streamerr.NotFound {
			t.Error(err)
		}
		if all := r.Workers(); len(all) != 2 || all[0].GetModel() != "a" || all[0].GetStreams() != 1 {
			t.Error(all)
		}
	})
	if n != 200 || err != nil {
		t.Error(n, err)
	}
	polltest.Eventually(t, "the removed model is gone", func() bool { return len(r.Workers()) == 1 })
	if j.Count("model was removed or replaced") != 1 {
		t.Error(j)
	}
}

func TestModelKeepsItsWorkersIfItsFilesAreTheSame(t *testing.T) {
	a, b := work(t, "w/a", "copy", nil), work(t, "w/b", "copy", nil)
	r, j := open(t)
	c := card("", a)
	c.Directory = directory(t)
	set(t, r, c)
	healthy(t, r, 1)
	before := r.find("copy")
	c.Aliases, c.Workers = []string{"new"}, a.addr+","+b.addr
	set(t, r, c)
	healthy(t, r, 2)
	polltest.Eventually(t, "both workers are logged", func() bool { return j.Count("worker is healthy") >= 2 }) // a worker is healthy before its log line
	if r.find("copy") != before || j.Count("worker is healthy") != 2 {
		t.Error("the model was replaced:", j)
	}
	if _, err := ask(t, r, "new", 3, nil); err != nil {
		t.Error(err)
	}
	write(t, filepath.Join(c.Directory, templateFile), "{{ messages[0].content }}!")
	var asking sync.WaitGroup
	for range 20 {
		asking.Go(func() {
			if n, err := ask(t, r, "copy", 200, nil); n != 200 || err != nil {
				t.Error(n, err)
			}
		})
	}
	set(t, r, c)
	if r.find("copy") == before {
		t.Error("another template is the same model")
	}
	for range 20 { // at once: no request may meet it without workers
		if n, err := ask(t, r, "copy", 3, nil); n != 3 || err != nil {
			t.Error(n, err)
		}
	}
	asking.Wait()
	c.Timers.Deadline = 1
	set(t, r, c)
	if _, err := ask(t, r, "copy", 200, nil); err == nil || streamerr.As(err).Reason != streamerr.Deadline {
		t.Error("the timers of the new card do not apply:", err)
	}
	polltest.Eventually(t, "the replaced models are gone", func() bool { return len(r.Workers()) == 2 })
}

func TestCardsChangeTheRequestsToWorkers(t *testing.T) {
	w := work(t, "w/a", "m", nil)
	r, _ := open(t)
	c := card("m", w)
	c.Context, c.EOS = 64, []uint32{5, 6}
	c.Template = filepath.Join(t.TempDir(), "t.jinja")
	write(t, c.Template, "{{ messages[0].content }}")
	set(t, r, c)
	healthy(t, r, 1)
	if now := r.Models()[0]; now.GetContextLength() != 64 || now.GetTemplate() == nil || len(now.GetTemplate().GetSystem()) > 0 {
		t.Error(now)
	}
	if _, err := ask(t, r, "m", 3, nil); err != nil {
		t.Fatal(err)
	}
	req := w.last()
	if len(req.GetPrompt()) > 2 || !slices.Equal(req.GetSampling().GetStopTokenIds(), c.EOS) || req.GetSampling().GetMaxTokens() != 3 {
		t.Error(req)
	}
	if n, err := ask(t, r, "m", 64, nil); err != nil || n != 64-len(w.last().GetPrompt()) {
		t.Errorf("%d tokens of 64, %v", n, err)
	}
	got := 0
	for out, err := range chat.Engine(r.Generate).Range(t.Context(), &chatv1.ChatRequest{Model: "m", Messages: []*chatv1.Message{{Role: "user", Content: "hi"}}}) {
		if err != nil {
			t.Fatal(err)
		}
		got += int(out.GetDelta().GetTokens())
	}
	if want := 64 - len(w.last().GetPrompt()); got != want {
		t.Errorf("%d tokens, and the context leaves %d", got, want)
	}
}

// TestModelWithoutTemplateServesAllButChats: base models have none, and neither have those that embed.
func TestModelWithoutTemplateServesAllButChats(t *testing.T) {
	w := work(t, "w/a", "m", func(i *llmv1.WorkerInfo) { i.Embeds = true })
	dir := directory(t)
	if err := os.Remove(filepath.Join(dir, "tokenizer_config.json")); err != nil {
		t.Fatal(err)
	}
	r, j := open(t)
	c := card("m", w)
	c.Directory = dir
	set(t, r, c)
	healthy(t, r, 1)
	if _, err := ask(t, r, "m", 3, nil); streamerr.As(err).Reason != streamerr.Invalid || streamerr.As(err).Param != "messages" || !strings.Contains(err.Error(), "m has no chat template") {
		t.Errorf("a chat: %v", err)
	}
	got := 0
	req := &chatv1.ChatRequest{Model: "m", Prompts: []*chatv1.Prompt{{Content: &chatv1.Prompt_Text{Text: "hi"}}}, Sampling: &llmv1.Sampling{MaxTokens: new(uint32(3))}}
	for out, err := range chat.Engine(r.Generate).Range(t.Context(), req) {
		if err != nil {
			t.Fatal(err)
		}
		got += int(out.GetDelta().GetTokens())
	}
	if got != 3 {
		t.Errorf("a completion has %d tokens", got)
	}
	for _, err := range chat.EmbedEngine(r.Embed).Range(t.Context(), &chatv1.EmbeddingsRequest{Model: "m", Inputs: req.GetPrompts()}) {
		if err != nil {
			t.Error(err)
		}
	}
	if asked := w.embedded.Load(); asked == nil || len(asked.GetInputs()) != 1 || len(asked.GetInputs()[0].GetIds()) == 0 || len(asked.GetTexts()) > 0 {
		t.Errorf("the worker embeds %v", asked)
	}
	if r.Models()[0].GetTemplate() != nil || j.Count("has no chat template") != 1 {
		t.Error(r.Models(), j)
	}
}

func TestWorkersWithShorterContextsServe(t *testing.T) {
	w := work(t, "w/a", "m", func(i *llmv1.WorkerInfo) { i.ContextLength = 100 })
	r, _ := open(t)
	set(t, r, card("m", w))
	healthy(t, r, 1)
	if r.Models()[0].GetContextLength() != 100 {
		t.Error(r.Models())
	}
	if n, err := ask(t, r, "m", 100, nil); err != nil || n != 100-len(w.last().GetPrompt()) {
		t.Errorf("%d tokens of 100, %v", n, err)
	}
	if n, err := ask(t, r, "m", 50, nil); err != nil || n != 50 {
		t.Error(n, err)
	}
}

func TestWhyFindsStreamsOfAllModels(t *testing.T) {
	a, b := work(t, "w/a", "a", nil), work(t, "w/b", "b", nil)
	r, _ := open(t)
	set(t, r, card("a", a), card("b", b))
	healthy(t, r, 2)
	ledger.At(&a.hop).Open("id", "w/a", "")
	if told := r.Why(t.Context(), "id", nil); len(told) != 1 || told[0].GetHop() != "w/a" {
		t.Error(told)
	}
}

func TestStreamsChargeTheirWorkersUntilTheyEnd(t *testing.T) {
	w := work(t, "w/0", "m", nil)
	r, _ := open(t)
	set(t, r, card("m", w))
	healthy(t, r, 1)
	n, err := ask(t, r, "m", 3, func(int) {
		// the prompt was read, and one token of the answer has arrived
		if unread, tokens := r.Charged(); unread != 0 || tokens < 2 {
			t.Errorf("%d tokens to read and %d in caches are charged", unread, tokens)
		}
	})
	if err != nil || n != 3 {
		t.Fatal(n, err)
	}
	polltest.Eventually(t, "nothing is charged", func() bool {
		unread, tokens := r.Charged()
		return unread == 0 && tokens == 0
	})
}

func TestMissingFilesAreNamed(t *testing.T) {
	dir := directory(t)
	if err := os.Remove(filepath.Join(dir, "config.json")); err != nil {
		t.Fatal(err)
	}
	r, _ := open(t)
	if err := r.Set([]Card{{Directory: dir, Workers: "h:1"}}); err == nil || !strings.Contains(err.Error(), "config.json") {
		t.Error(err)
	}
}

func TestContract(t *testing.T) {
	streamtest.Run(t, func(t *testing.T) streamtest.Subject[*chatv1.ChatRequest, *chatv1.GenerateResponse] {
		w := work(t, "w/a", "m", func(i *llmv1.WorkerInfo) { i.ContextLength = 1 << 20 })
		r, _ := open(t)
		c := card("m", w)
		c.Directory = directory(t)
		longer(t, c.Directory)
		set(t, r, c)
		healthy(t, r, 1)
		ask := func(content string, tokens uint32) func() *chatv1.ChatRequest {
			return func() *chatv1.ChatRequest {
				return &chatv1.ChatRequest{Model: "m", Messages: []*chatv1.Message{{Role: "user", Content: content}}, Sampling: &llmv1.Sampling{MaxTokens: &tokens}}
			}
		}
		return streamtest.Subject[*chatv1.ChatRequest, *chatv1.GenerateResponse]{
			Engine: r.Generate, Short: ask("hi", 3), Long: ask("hi", 100_000), Bad: ask("\xff", 3),
			Live: func() int { return int(w.live.Load()) },
		}
	})
}

// longer gives a model a longer context.
func longer(t *testing.T, dir string) {
	t.Helper()
	path := filepath.Join(dir, "config.json")
	var config map[string]any
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, &config)
	}
	if err != nil {
		t.Fatal(err)
	}
	config["max_position_embeddings"] = 1 << 20
	if b, err = json.Marshal(config); err != nil {
		t.Fatal(err)
	}
	write(t, path, string(b))
}

// TestCardNamesTheContextThatConfigJSONLacks: without either, nobody could refuse a prompt that is too long.
func TestCardNamesTheContextThatConfigJSONLacks(t *testing.T) {
	w := work(t, "w/a", "m", nil)
	r, _ := open(t)
	c := card("m", w)
	c.Directory = t.TempDir()
	if err := os.CopyFS(c.Directory, whencetiny.FS()); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(c.Directory, "config.json")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil { // a copy may be read-only
		t.Fatal(err)
	}
	write(t, path, strings.Replace(string(b), "max_position_embeddings", "no_limit", 1))
	if err := r.Set([]Card{c}); err == nil || !strings.Contains(err.Error(), "needs a context") {
		t.Error(err)
	}
	c.Context = 64
	set(t, r, c)
	if r.Models()[0].GetContextLength() != 64 {
		t.Error(r.Models())
	}
}
