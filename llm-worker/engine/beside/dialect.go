package beside

import (
	"net/http"
	"slices"
	"strings"

	"github.com/whence-dev/whence/pkg/streamerr"
)

// A Dialect completes a complaint from the texts of one kind of server: whether its engine has died, and
// the code of a refusal without a code. inAnswer reports that the server sent the complaint in place of a
// part of the answer, so that Status is the status in the complaint itself.
//
// Texts are compared from their beginning: a refusal may quote the request, which can hold any text.
type Dialect func(c *Complaint, inAnswer bool)

// Complete applies the dialect to the complaint. A nil dialect does nothing.
func (d Dialect) Complete(c *Complaint, inAnswer bool) *Complaint {
	if d != nil {
		d(c, inAnswer)
	}
	return c
}

// VLLM is the dialect of vLLM. Its front end outlives its engine process, and then reports
// EngineDeadError: with status 500, or in the answer. In an answer, older versions give every error the
// status 400.
func VLLM(c *Complaint, inAnswer bool) {
	message := strings.TrimPrefix(strings.TrimSpace(c.Message), "vllm.v1.engine.exceptions.")
	if message != "EngineDeadError" && !strings.HasPrefix(message, "EngineDeadError:") && !strings.HasPrefix(message, "EngineCore encountered an issue") {
		return
	}
	c.Died = c.Status == http.StatusInternalServerError || inAnswer && (c.Status == 0 || c.Status == http.StatusBadRequest)
}

// deadRunner begin the texts with which Ollama reports that its runner has ended: before an answer, and
// within one.
var deadRunner = []string{"model runner has unexpectedly stopped", "an error was encountered while running the model"}

// Ollama is the dialect of Ollama, whose errors are a text alone. Its runner is the process that
// generates.
func Ollama(c *Complaint, inAnswer bool) {
	message := strings.TrimSpace(c.Message)
	failed := c.Status == http.StatusInternalServerError || inAnswer && c.Status == 0
	c.Died = failed && slices.ContainsFunc(deadRunner, func(text string) bool { return strings.HasPrefix(message, text) })
	switch {
	case c.Code != "":
	case c.Status == http.StatusNotFound && strings.HasPrefix(message, "model "):
		c.Code = streamerr.CodeModelNotFound
	case c.Status == http.StatusBadRequest && isContextRefusal(message):
		c.Code = streamerr.CodeContextLength
	}
}

// contextRefusals begin the texts with which Ollama refuses a prompt that does not fit: those of its own
// runner, and those of llama.cpp's.
var contextRefusals = []string{"the input length exceeds the context length", "the request exceeds the available context size", "request ("}

func isContextRefusal(message string) bool {
	for _, begins := range contextRefusals {
		if strings.HasPrefix(message, begins) && strings.Contains(message, "context") {
			return true
		}
	}
	return false
}
