package ollama

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/whence-dev/whence/llm-worker/engine/beside"
)

// maxShown bounds the description of a model, in bytes. Licences and templates take some hundred
// kilobytes.
const maxShown = 4 << 20

// logStops logs the stop strings of the model's Modelfile, once until they change. Ollama applies
// them to every request that names none itself, and does not say that an answer ended at one.
func (e *Engine) logStops(ctx context.Context, name string) {
	stops, err := e.readStops(ctx, name)
	if err != nil || slices.Equal(stops, e.stops) {
		return
	}
	e.stops = stops
	if len(stops) > 0 && e.opts.Log != nil {
		e.opts.Log.Info("the model's Modelfile has stop strings, at which Ollama ends every answer", "model", name, "stop", stops)
	}
}

// readStops returns the stop strings of the model's Modelfile.
func (e *Engine) readStops(ctx context.Context, name string) ([]string, error) {
	body, err := json.Marshal(map[string]string{"model": name})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, beside.AskTimeout)
	defer cancel()
	x := e.client.Exchange("/api/show", body, maxShown)
	defer context.AfterFunc(ctx, x.HangUp)()
	var shown struct {
		Parameters string `json:"parameters"`
	}
	if err := x.Do(ctx, &shown); err != nil {
		return nil, err
	}
	return stopsIn(shown.Parameters), nil
}

// stopsIn returns the stop strings in the parameters of a Modelfile: lines of a name and a value, which for
// text is quoted as in Go.
func stopsIn(parameters string) (stops []string) {
	for line := range strings.Lines(parameters) {
		value, ok := strings.CutPrefix(strings.TrimSpace(line), "stop ")
		if !ok {
			continue
		}
		if text, err := strconv.Unquote(strings.TrimSpace(value)); err == nil && text != "" {
			stops = append(stops, text)
		}
	}
	return stops
}
