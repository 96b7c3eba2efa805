package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/whence-dev/whence/lab"
)

// A filedSpan is a span in the file of --trace-file, in OTLP's JSON.
type filedSpan struct {
	Attributes filedAttributes
	Events     []struct {
		Name       string
		Attributes filedAttributes
	}
}

type filedAttributes []struct {
	Key   string
	Value struct{ StringValue string }
}

func (a filedAttributes) word(key string) string {
	for _, kv := range a {
		if kv.Key == key {
			return kv.Value.StringValue
		}
	}
	return ""
}

// filedSpans reads the spans of one process.
func filedSpans(t *testing.T, file string) (all []filedSpan) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(bytes.NewReader(b))
	for lines.Buffer(nil, 1<<20); lines.Scan(); {
		var batch struct {
			ResourceSpans []struct {
				ScopeSpans []struct{ Spans []filedSpan }
			}
		}
		if err := json.Unmarshal(lines.Bytes(), &batch); err != nil {
			t.Fatal(err)
		}
		for _, resource := range batch.ResourceSpans {
			for _, scope := range resource.ScopeSpans {
				all = append(all, scope.Spans...)
			}
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

func (s *scene) traceFile(hop string) string {
	if s.flags.gateway && hop == chatService {
		hop = api0 // both are one process
	}
	return filepath.Join(s.traces, strings.ReplaceAll(hop, "/", "-")+".json")
}

// traced returns the account of a hop's span, once the hop has ended. It is the attributes'
// account, if the last event with a reason has the same reason and origin. Earlier events may tell of
// moves.
func (s *scene) traced(t *testing.T, hop string) lab.Statement {
	t.Helper()
	var all []string
	for _, span := range filedSpans(t, s.traceFile(hop)) {
		if span.Attributes.word("whence.stream.id") != s.id || span.Attributes.word("whence.hop") != hop {
			continue
		}
		said := span.Attributes.word("whence.reason") + ": " + span.Attributes.word("whence.path")
		event := ""
		for _, e := range span.Events {
			if reason := e.Attributes.word("whence.reason"); reason != "" {
				origin, _, _ := strings.Cut(e.Attributes.word("whence.path"), " > ")
				event = reason + ": " + origin
			}
		}
		if said != event && !strings.HasPrefix(said, event+" > ") {
			said += ", but its events " + event
		}
		all = append(all, said)
	}
	return lab.Statement(strings.Join(all, " and "))
}
