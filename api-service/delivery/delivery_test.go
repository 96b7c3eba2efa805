package delivery_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/whence-dev/whence/api-service/delivery"
	"github.com/whence-dev/whence/api-service/replay"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/internal/leaktest"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// sent returns the gaps of events with these pauses between them.
func sent(t *testing.T, pauses ...time.Duration) (g delivery.Gaps, events uint32) {
	t.Helper()
	var d delivery.Delivery
	at := time.Minute
	d.Sent(at, 1)
	for _, pause := range pauses {
		at += pause
		d.Sent(at, 1)
	}
	g, events, _ = d.Tell()
	return g, events
}

func each(n int, pause time.Duration) (all []time.Duration) {
	for range n {
		all = append(all, pause)
	}
	return all
}

// bursts returns the pauses of n events that arrive in bursts of at events.
func bursts(n, at int, pause time.Duration) (all []time.Duration) {
	for i := range n - 1 {
		if (i+1)%at == 0 {
			all = append(all, pause)
		} else {
			all = append(all, 0)
		}
	}
	return all
}

func TestVerdicts(t *testing.T) {
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		sent, seen []time.Duration
		tokens     uint32
		want       streamv1.Verdict
	}{
		"as it was sent":                          {each(59, 25*ms), each(59, 25*ms), 60, streamv1.Verdict_VERDICT_FLOWING},
		"a little late, and unevenly":             {each(59, 26*ms), append(each(30, 40*ms), each(29, 12*ms)...), 60, streamv1.Verdict_VERDICT_FLOWING},
		"two bursts":                              {each(59, 25*ms), bursts(60, 30, 750*ms), 60, streamv1.Verdict_VERDICT_BUFFERED},
		"all at once":                             {each(59, 25*ms), bursts(60, 60, 0), 60, streamv1.Verdict_VERDICT_BUFFERED},
		"some of many seconds":                    {each(59, 6*ms), bursts(60, 20, 2*time.Second), 60, streamv1.Verdict_VERDICT_BUFFERED},
		"slow engine":                             {each(9, 3*time.Second), bursts(10, 10, 0), 10, streamv1.Verdict_VERDICT_BUFFERED},
		"engine that stutters":                    {bursts(60, 20, time.Second), bursts(60, 20, time.Second), 60, streamv1.Verdict_VERDICT_UNCLEAR},
		"short":                                   {each(4, 25*ms), each(4, 0), 5, streamv1.Verdict_VERDICT_UNCLEAR},
		"faster than networks and browsers show":  {each(500, 2*ms), bursts(501, 50, 100*ms), 501, streamv1.Verdict_VERDICT_UNCLEAR},
		"sent in few events":                      {each(5, 100*ms), each(5, 100*ms), 60, streamv1.Verdict_VERDICT_MERGED},
		"sent in few events, and collected":       {each(9, 100*ms), each(9, 0), 60, streamv1.Verdict_VERDICT_BUFFERED},
		"reader that saw the end alone":           {each(59, 25*ms), each(9, 0), 60, streamv1.Verdict_VERDICT_UNCLEAR},
		"reader that saw more than there was":     {each(59, 25*ms), each(99, 0), 60, streamv1.Verdict_VERDICT_UNCLEAR},
		"tokens not known, as of a reader's part": {each(9, 25*ms), each(9, 25*ms), 0, streamv1.Verdict_VERDICT_FLOWING},
	} {
		gaps, events := sent(t, c.sent...)
		seen, _ := sent(t, c.seen...)
		got := delivery.Judge(c.tokens, events, gaps, delivery.Report{Gaps: seen}, "")
		if got.GetVerdict() != c.want {
			t.Errorf("%s: %v", name, got)
		}
		if proxy := got.GetProxy(); (proxy == "a proxy") != (c.want == streamv1.Verdict_VERDICT_BUFFERED) {
			t.Errorf("%s: it is %q", name, proxy)
		}
	}
}

func TestVerdictHasItsNumbers(t *testing.T) {
	gaps, events := sent(t, each(59, 25*time.Millisecond)...)
	seen, _ := sent(t, bursts(60, 30, 750*time.Millisecond)...)
	got := delivery.Judge(60, events, gaps, delivery.Report{Gaps: seen}, "nginx/1.22.1")
	if got.GetProxy() != "nginx/1.22.1" || got.GetSent().GetEvents() != 60 || got.GetSent().GetBursts() != 60 || got.GetSeen().GetEvents() != 60 || got.GetSeen().GetBursts() != 2 {
		t.Error(got)
	}
	if word := delivery.Word(got.GetVerdict()); word != "buffered" {
		t.Error(word)
	}
}

func TestProxiesAreNamed(t *testing.T) {
	for want, c := range map[string]struct {
		request map[string]string
		report  delivery.Report
	}{
		"":                       {report: delivery.Report{Server: "whence"}},
		"nginx/1.22.1":           {report: delivery.Report{Server: "nginx/1.22.1"}, request: map[string]string{"X-Forwarded-For": "::1"}},
		"varnish":                {report: delivery.Report{Via: "1.1 google, 1.1 varnish (Varnish/7.1)"}},
		"squid":                  {request: map[string]string{"Via": "1.1 squid"}},
		"Cloudflare":             {request: map[string]string{"CF-Ray": "8f-FRA", "X-Forwarded-For": "::1"}},
		"CloudFront":             {request: map[string]string{"X-Amz-Cf-Id": "x"}},
		"a proxy":                {request: map[string]string{"Forwarded": "for=x"}},
		strings.Repeat("x", 64):  {report: delivery.Report{Server: strings.Repeat("x", 300)}},
		"evil\"<b>":              {report: delivery.Report{Server: "\x1b\nevil\"<b>\x7f"}},
		"Google's load balancer": {report: delivery.Report{Server: "\n\t", Via: "nonsense"}, request: map[string]string{"X-Cloud-Trace-Context": "1"}},
	} {
		if got := delivery.Proxy(func(header string) string { return c.request[header] }, c.report); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestReportsAreReadStrictly(t *testing.T) {
	r, err := delivery.Parse([]byte(`{"gaps":[1,2,3,4,5,6,7,8,9,10],"server":"nginx","via":"1.1 x"}`))
	if err != nil || r.Gaps != (delivery.Gaps{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}) || r.Server != "nginx" || r.Via != "1.1 x" {
		t.Error(r, err)
	}
	const none = `[0,0,0,0,0,0,0,0,0,0]`
	for body, param := range map[string]string{
		``: "", `[]`: "", `null`: "", `{"gaps":` + none + `} {}`: "",
		`{}`: "gaps", `{"gaps":null}`: "gaps", `{"gaps":"x"}`: "gaps", `{"gaps":[1]}`: "gaps", `{"gaps":[0,0,0,0,0,0,0,0,0,0,0]}`: "gaps",
		`{"gaps":[-1,0,0,0,0,0,0,0,0,0]}`: "gaps[0]", `{"gaps":[0,0.5,0,0,0,0,0,0,0,0]}`: "gaps[1]", `{"gaps":[0,0,16777217,0,0,0,0,0,0,0]}`: "gaps[2]",
		`{"gaps":` + none + `,"more":1}`: "more", `{"gaps":` + none + `,"server":1}`: "server", `{"gaps":` + none + `,"via":[]}`: "via",
	} {
		_, err := delivery.Parse([]byte(body))
		if e := streamerr.As(err); e == nil || e.Reason != streamerr.Invalid || e.Param != param || strings.Contains(e.Text(), "Go ") {
			t.Errorf("%s: %v", body, err)
		}
	}
}

func FuzzReport(f *testing.F) {
	f.Add([]byte(`{"gaps":[1,2,3,4,5,6,7,8,9,10],"server":"nginx","via":"1.1 x"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := delivery.Parse(body)
		if err != nil {
			if streamerr.As(err).Reason != streamerr.Invalid {
				t.Error(err)
			}
			return
		}
		for _, c := range delivery.Proxy(func(string) string { return r.Via }, r) {
			if c < ' ' || c > '~' {
				t.Errorf("a name with %q", c)
			}
		}
		delivery.Judge(1, 1, r.Gaps, r, "")
	})
}

func TestDeliveriesAreKeptForAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b delivery.Book
		open := func() *delivery.Delivery {
			return b.Open(delivery.Of(replay.Head{ID: "s", Memo: "large"}))
		}
		first := open()
		if first.Head().Memo != "" || first.Head().ID != "s" {
			t.Error("a delivery keeps the memo of its stream")
		}
		time.Sleep(time.Hour)
		if b.Find("s") != first {
			t.Error("a live delivery is dropped")
		}
		second := open() // another reader of the stream
		b.Close(first)
		time.Sleep(delivery.Keep + 1)
		if b.Find("s") != second {
			t.Error("the end of one delivery ends another")
		}
		b.Close(second)
		time.Sleep(delivery.Keep)
		if b.Find("s") != second || b.Find("other") != nil {
			t.Error("forgotten too early")
		}
		if _, _, first := second.Tell(); !first {
			t.Error("the first report counts as a repeated one")
		}
		if _, _, first := second.Tell(); first {
			t.Error("a second report counts as the first")
		}
		time.Sleep(time.Nanosecond)
		if b.Find("s") != nil {
			t.Error("not forgotten")
		}
	})
}

// BenchmarkSent measures the cost of recording an event.
func BenchmarkSent(b *testing.B) {
	var d delivery.Delivery
	b.ReportAllocs()
	for b.Loop() {
		d.Sent(time.Second, 1)
	}
}
