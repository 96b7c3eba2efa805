package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	streamstory "github.com/whence-dev/whence/api-service/story"
	"github.com/whence-dev/whence/internal/polltest"
)

// cards is a path whose chat-service reads its models from a file, with workers that a test starts.
type cards struct {
	*whence
	file string
}

// runCards starts an api-service and a chat-service with a file of models. It does not wait for
// readiness.
func runCards(t *testing.T, text string, chat ...string) *cards {
	t.Helper()
	w := &cards{file: filepath.Join(t.TempDir(), "models.yaml")}
	w.write(t, text)
	w.whence = above(t, "", append(chat, "--models", w.file, "--metrics-listen", "127.0.0.1:0")...)
	return w
}

func (w *cards) write(t *testing.T, text string) {
	t.Helper()
	if err := os.WriteFile(w.file+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(w.file+".new", w.file); err != nil {
		t.Fatal(err)
	}
}

// reload writes the file and waits for chat-service's log line about it.
func (w *cards) reload(t *testing.T, text, says string) {
	t.Helper()
	seen := len(w.processes[chatService].lines(says))
	w.write(t, text)
	polltest.Eventually(t, "the chat-service says "+says, func() bool { return len(w.processes[chatService].lines(says)) > seen })
}

// lines returns the lines so far that a process has logged with a word.
func (p *process) lines(word string) (found []string) {
	all := p.Log.All()
	for _, line := range all {
		if strings.Contains(line, word) {
			found = append(found, line)
		}
	}
	return found
}

func (w *whence) workersNow(t *testing.T) (all []streamstory.Worker) {
	t.Helper()
	var list struct{ Workers []streamstory.Worker }
	r := w.get(t, "/v1/workers")
	if err := json.Unmarshal(r.body, &list); err != nil || r.status != http.StatusOK {
		t.Fatalf("status %d: %s", r.status, r.body)
	}
	return list.Workers
}

// awaitUsed waits until n workers get streams.
func (w *whence) awaitUsed(t *testing.T, n int) {
	t.Helper()
	polltest.Eventually(t, fmt.Sprint(n, " workers get streams"), func() bool {
		healthy := 0
		for _, worker := range w.workersNow(t) {
			if worker.State == "healthy" {
				healthy++
			}
		}
		return healthy == n
	})
}

func startWorker(t *testing.T, name, model string, more ...string) *process {
	t.Helper()
	return service(t, llmWorker, "127.0.0.1:0", []string{"--name", name, "--model-name", model}, more)
}

func TestTwoModelsOnOneChatService(t *testing.T) {
	t.Parallel()
	fox, owl := startWorker(t, "llm-worker/fox", "fox"), startWorker(t, "llm-worker/owl", "owl")
	w := runCards(t, fmt.Sprintf("models:\n- {name: fox, aliases: [default], workers: '%s'}\n- {name: owl, context: 128, template: %s, workers: ['%s']}\n", fox.listening(t), writeOddTemplate(t), owl.listening(t)))
	w.awaitUsed(t, 2)
	for name, worker := range map[string]string{"fox": "llm-worker/fox", "default": "llm-worker/fox", "owl": "llm-worker/owl"} {
		l := w.open(t, greedy(short, "model", name, "max_tokens", 10))
		l.completed(t)
		s := w.why(t, l.id)
		if last := s.Hops[len(s.Hops)-1].Hop; last != worker {
			t.Errorf("%s was answered by %s", name, last)
		}
	}
	r := w.post(t, greedy(short))
	if e := r.completion(t).Error; r.status != http.StatusNotFound || e.Message != `the model "whence-tiny" does not exist; there is "fox", "owl"` {
		t.Errorf("status %d: %s", r.status, r.body)
	}
	if r := w.post(t, greedy(strings.Repeat("word ", 200), "model", "owl")); r.status != http.StatusBadRequest || !strings.Contains(string(r.body), "maximum context length is 128 tokens") {
		t.Errorf("status %d: %s", r.status, r.body)
	}
	checkOddTemplate(t, w.whence, "owl")
	var list struct {
		Data []struct {
			ID, Object string
			Aliases    []string
			Length     int `json:"context_length"`
		}
	}
	if err := json.Unmarshal(w.get(t, "/v1/models").body, &list); err != nil || len(list.Data) != 2 {
		t.Fatal(list, err)
	}
	if a, b := list.Data[0], list.Data[1]; a.ID != "fox" || strings.Join(a.Aliases, " ") != "default" || a.Length != 1024 || b.ID != "owl" || b.Length != 128 {
		t.Errorf("%+v", list)
	}
	if r := w.get(t, "/v1/models/default"); r.status != http.StatusOK || !strings.Contains(string(r.body), `"id":"fox"`) {
		t.Errorf("status %d: %s", r.status, r.body)
	}
}

func TestReloadDropsNoStream(t *testing.T) {
	t.Parallel()
	pace := []string{"--pace", "25", "--max-running", "64"}
	one, two := startWorker(t, "llm-worker/1", model, pace...), startWorker(t, "llm-worker/2", model, pace...)
	owl := startWorker(t, "llm-worker/owl", "owl", pace...)
	first := fmt.Sprintf("models:\n- {workers: '%s,%s'}\n", one.listening(t), two.listening(t))
	w := runCards(t, first)
	w.awaitUsed(t, 2)
	const length = 150
	want := w.answer(t, greedy(long, "max_tokens", length))

	var all [50]*live
	for i := range all {
		all[i] = w.open(t, greedy(long, "max_tokens", length)).begun(t)
	}
	const loaded, refused = `"models are loaded"`, `"models are refused`
	w.reload(t, fmt.Sprintf("models:\n- {workers: '%s', aliases: [tiny]}\n- {name: owl, workers: '%s'}\n", two.listening(t), owl.listening(t)), loaded)
	w.awaitUsed(t, 2) // one worker is new
	w.reload(t, "models:\n- {name: owl, directory: /nowhere}\n", refused)
	w.answer(t, greedy(short, "model", "tiny", "max_tokens", 3))
	w.answer(t, greedy(short, "model", "owl", "max_tokens", 3))
	w.reload(t, fmt.Sprintf("models:\n- {name: owl, workers: '%s'}\n", owl.listening(t)), loaded)
	if r := w.post(t, greedy(short)); r.status != http.StatusNotFound {
		t.Errorf("a removed model: status %d: %s", r.status, r.body)
	}
	leaving := 0
	for _, worker := range w.workersNow(t) {
		if worker.Leaving {
			leaving += int(worker.Streams)
		}
	}
	if leaving == 0 {
		t.Error("all streams had ended before the last reload: nothing was tested")
	}
	w.write(t, first)
	if err := w.processes[chatService].Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	for i, l := range all {
		if got := l.completed(t); got != want {
			t.Errorf("stream %d: %q, want %q", i, got, want)
		}
		if m := moves(w.why(t, l.id)); len(m) != 0 {
			t.Errorf("stream %d moved: %v", i, m)
		}
	}
	w.awaitUsed(t, 2)
	w.works(t)
	polltest.Eventually(t, "the removed worker is no longer listed", func() bool { return len(w.workersNow(t)) == 2 })
	s := w.processes[chatService].scrape(t)
	const reloads = "whence_config_reloads_total"
	refusals, taken := s.Sum(reloads, "result=refused"), s.Sum(reloads, "result=taken")
	if refusals != 1 || taken != 3 && taken != 4 { // the last file may have been seen before the signal
		t.Errorf("%v files were refused, %v taken", refusals, taken)
	}
}

func TestBadFileOfModelsIsRefusedAtTheStart(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "models.yaml")
	if err := os.WriteFile(file, []byte("models:\n- {name: a}\n- {name: b, directory: /nowhere}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, chatService, "--listen", "127.0.0.1:0", "--models", file)
	p.await(t, p.Log, "what is wrong", func(line string) bool { return strings.Contains(line, "model b: open config.json") })
	p.exitWith(t, 1)
}
