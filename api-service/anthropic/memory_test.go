package anthropic_test

import (
	"runtime"
	"strings"
	"testing"

	"github.com/whence-dev/whence/api-service/anthropic"
	"github.com/whence-dev/whence/api-service/call"
)

// TestManyBlocksAreParsedInLinearMemory parses bodies whose texts become one turn.
func TestManyBlocksAreParsedInLinearMemory(t *testing.T) {
	const blocks = 40000
	many := func(item string) string { return strings.TrimSuffix(strings.Repeat(item+",", blocks), ",") }
	for name, messages := range map[string]string{
		"text blocks":     `{"role":"user","content":[` + many(`{"type":"text","text":"word"}`) + `]}`,
		"thinking blocks": `{"role":"user","content":"a"},{"role":"assistant","content":[` + many(`{"type":"thinking","thinking":"word"}`) + `]},{"role":"user","content":"b"}`,
		"messages":        many(`{"role":"user","content":"word"}`),
		"foreign blocks":  `{"role":"user","content":[` + many(`{"type":"search_result","title":"word"}`) + `]}`,
		"deep blocks":     `{"role":"user","content":[{"type":"novelty","text":"word","content":` + strings.Repeat(`{"content":`, 180) + `[` + many(`"word"`) + `]` + strings.Repeat(`}`, 180) + `}]}`,
	} {
		body := []byte(`{"model":"m","max_tokens":9,"messages":[` + messages + `]}`)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := anthropic.Parse(body, nil); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		// A joined text of 160 kB that is copied for each of 40,000 blocks takes 3 GB, 3,000 times the body.
		if times := (after.TotalAlloc - before.TotalAlloc) / uint64(len(body)); times > 100 {
			t.Errorf("%s: %d times the %d bytes of the body were allocated", name, times, len(body))
		}
	}
}

func TestAReleasedRequestFreesItsTexts(t *testing.T) {
	const size = 2 << 20
	parse := func() *call.Call {
		return parser.Parse(t, `{`+hi+`,"system":"`+strings.Repeat("s", size)+`","metadata":{"user_id":"u"}}`)
	}
	heap := func() uint64 {
		var s runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&s)
		return s.HeapAlloc
	}
	before := heap()
	c := parse()
	events, whole := c.Events(), c.Whole()
	c.ReleaseRequest()
	if after := heap(); after > before+size/2 {
		t.Errorf("a request with a system prompt of %d bytes holds %d bytes", size, after-before)
	}
	if got := c.Param("messages[0].content"); got != "messages[0].content" || c.Request.GetSession() != "" {
		t.Errorf("the call still has the field %s and the session %q", got, c.Request.GetSession())
	}
	runtime.KeepAlive(events)
	runtime.KeepAlive(whole)
	runtime.KeepAlive(c)
}
