package story_test

import (
	"strings"
	"testing"

	"github.com/whence-dev/whence/api-service/story"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
)

func TestStoryHasTheDelivery(t *testing.T) {
	for verdict, want := range map[streamv1.Verdict]string{
		streamv1.Verdict_VERDICT_BUFFERED: "nginx/1.22.1 between client and api-service collects tokens: 60 events, sent in 59 bursts, arrived in 2",
		streamv1.Verdict_VERDICT_MERGED:   "300 tokens were sent in 60 events",
		streamv1.Verdict_VERDICT_FLOWING:  "the client received the answer as it was sent: 60 events in 2 bursts",
		streamv1.Verdict_VERDICT_UNCLEAR:  "to tell whether a proxy collects them",
	} {
		record := &streamv1.Record{Hop: "api-service", Delivery: &streamv1.Delivery{
			Verdict: verdict, Proxy: "nginx/1.22.1", Tokens: 300,
			Sent: &streamv1.Pace{Events: 60, Bursts: 59, Gaps: []uint32{0, 59}}, Seen: &streamv1.Pace{Events: 60, Bursts: 2, Gaps: []uint32{58, 1}},
		}}
		s := story.New([]*streamv1.Record{record, {Hop: "chat-service"}})
		var b strings.Builder
		if err := s.Print(&b); err != nil || !strings.Contains(b.String(), want) {
			t.Errorf("%v: %s does not say %q", err, &b, want)
		}
		if d := s.Delivery; d == nil || d.Proxy != "nginx/1.22.1" || d.Seen.Gaps[0] != 58 || d.Sent.Bursts != 59 {
			t.Errorf("%+v", d)
		}
	}
}
