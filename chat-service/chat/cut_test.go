package chat_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
)

// cut applies the rule of package stopstring to a whole text: the answer ends before the stop
// string that ends first, and the longest wins if several end there.
func cut(text string, stops []string) (answer, matched string) {
	for end := range len(text) + 1 {
		for _, stop := range stops {
			if strings.HasSuffix(text[:end], stop) && len(stop) > len(matched) {
				matched = stop
			}
		}
		if matched != "" {
			return text[:end-len(matched)], matched
		}
	}
	return text, ""
}

// TestRandomAnswersAreCutAtTheirStop reads answers of random tokens, including partial characters
// and special tokens, with stop strings that mostly occur in them.
func TestRandomAnswersAreCutAtTheirStop(t *testing.T) {
	m := model(t)
	r := rand.New(rand.NewPCG(21, 22))
	phrases := []string{"The quick brown fox. ", "이제 그만 하자 👩‍💻🚀", "a\n\nb\n\n\nc", "aabaabaaab", "🙂🙃"}
	stopped, held := 0, 0
	for range 1500 {
		var ids []uint32
		for range 1 + r.IntN(5) {
			if r.IntN(3) > 0 {
				ids = append(ids, m.Tokenizer.Encode(phrases[r.IntN(len(phrases))], false)...)
			}
			for range r.IntN(4) {
				ids = append(ids, uint32(r.IntN(m.Tokenizer.VocabSize())))
			}
		}
		whole := m.Tokenizer.Decode(ids, true)
		req := user("x")
		for range r.IntN(4) {
			if stop := part(r, whole); stop != "" {
				req.Stop = append(req.Stop, stop)
			}
		}
		want, matched := cut(whole, req.GetStop())
		p := &parrot{ids: ids, step: func() int { return 1 + r.IntN(4) }}
		text, tokens, end, err := read(t, pipeline(m, p.generate), req)
		if err != nil || text != want || end.GetMatchedStop() != matched || tokens > uint32(len(ids)) {
			t.Fatalf("%v with stops %q\n got %q, %q, %v\nwant %q, %q", ids, req.GetStop(), text, end.GetMatchedStop(), err, want, matched)
		}
		switch end.GetFinish() {
		case llmv1.Finish_FINISH_STOP:
			stopped++
		default:
			held++
		}
	}
	if stopped < 200 || held < 200 {
		t.Errorf("%d answers were stopped, and %d were not: too few to tell", stopped, held)
	}
}

// part returns some characters of text, and sometimes one character of another text.
func part(r *rand.Rand, text string) string {
	runes := []rune(text)
	if len(runes) == 0 {
		return ""
	}
	from := r.IntN(len(runes))
	stop := string(runes[from:min(len(runes), from+1+r.IntN(6))])
	if r.IntN(2) == 0 {
		stop += "한"
	}
	return stop
}
