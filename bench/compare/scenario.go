package main

import (
	"math/rand/v2"
	"strings"
	"time"

	"github.com/whence-dev/whence/bench/load"
	"github.com/whence-dev/whence/bench/paced"
)

// A scenario is a load. A cell holds its measurements of one system.
type scenario struct {
	name string
	says string // description for the reader of the tables
	pace paced.Pace

	streams int           // clients of a closed loop
	tokens  int           // of an answer; 0 for answers without an end
	prompt  string        // of each request
	life    time.Duration // mean time until a client leaves; 0 means never
	rate    float64       // requests a second of an open loop, instead of the closed loop
	unread  int           // additional clients that read nothing
	beside  *load.Request // additional requests, besideRate per second, that are not measured

	ttft   bool // measure the time to first token with requests beside the streams
	memory bool // measure the memory of an open stream; the system is restarted for each cell
	storm  bool // measure only the leaving of all clients at once
}

const (
	endless    = 1 << 21
	besideRate = 1.0
	ttftRate   = 20.0 // requests a second
	inFlight   = 100  // requests at saturation
	perSecond  = 200  // requests at a fixed rate, which two cores serve with ease
)

var (
	shortPrompt  = words(9)
	prompt100    = words(64) // about 100 tokens with the template's
	prompt32k    = words(25_000)
	everySecond  = paced.Pace{Period: time.Second}
	shortPace    = paced.Pace{Period: 5 * time.Millisecond}
	fiftyASecond = paced.Pace{Period: 20 * time.Millisecond}
)

// words returns a text of n words that whence-tiny's vocabulary has, about 1.3 tokens each.
func words(n int) string {
	all := strings.Fields("the fox and the hen went to the harbor to see a small boat with a red sail")
	text := make([]string, n)
	for i := range text {
		text[i] = all[i%len(all)]
	}
	return strings.Join(text, " ")
}

// scenarios returns all scenarios, in the order of the tables.
func scenarios() []scenario {
	return []scenario{
		{name: "spread", says: "200 streams, 50 tokens a second each, at random phases", streams: 200, pace: fiftyASecond, ttft: true},
		{name: "in step", says: "200 streams, 50 tokens a second each, all at the same times", streams: 200, pace: paced.Pace{Period: 20 * time.Millisecond, InStep: true}},
		{name: "40 streams", says: "40 streams, 50 tokens a second each", streams: 40, pace: fiftyASecond},
		{name: "full speed", says: "32 streams as fast as they are read", streams: 32},
		{name: "idle crowd", says: "2,000 streams, 1 token a second each", streams: 2000, pace: everySecond, memory: true},
		{name: "short fixed rate", says: "200 requests a second with prompts of 100 tokens, and 5 tokens of answer, one every 5 ms", pace: shortPace, rate: perSecond, tokens: 5, prompt: prompt100},
		{name: "short saturated", says: "the same requests, 100 in flight", pace: shortPace, streams: inFlight, tokens: 5, prompt: prompt100},
		{name: "churn 20", says: "20 streams, 50 tokens a second each, whose clients leave after half a second on average", streams: 20, pace: fiftyASecond, life: 500 * time.Millisecond},
		{name: "churn 100", says: "100 streams, 50 tokens a second each, whose clients leave after half a second on average", streams: 100, pace: fiftyASecond, life: 500 * time.Millisecond},
		{name: "leave storm", says: "200 streams, 50 tokens a second each, whose clients all leave at once", streams: 200, pace: fiftyASecond, storm: true},
		{name: "10000 open", says: "10,000 streams, 1 token in two seconds each", streams: 10_000, pace: paced.Pace{Period: 1900 * time.Millisecond}, memory: true},
		{name: "leave in prefill", says: "100 streams whose prompt takes 1.5 s and whose clients leave after 0.3 s on average", streams: 100, pace: paced.Pace{Period: 20 * time.Millisecond, Prefill: 1500 * time.Millisecond}, life: 300 * time.Millisecond},
		{name: "slow readers", says: "spread, and 20 clients that read nothing", streams: 200, pace: fiftyASecond, unread: 20},
		{name: "32k prompts", says: "40 streams, and a prompt of 32,000 tokens every second", streams: 40, pace: fiftyASecond, beside: &load.Request{Tokens: 5, Prompt: prompt32k}},
		{name: "50k tokens", says: "8 streams of 50,000 tokens as fast as they are read", streams: 8, tokens: 50_000},
	}
}

// quick are the scenarios of --quick.
var quick = []string{"spread", "in step", "40 streams", "full speed", "idle crowd", "short fixed rate", "short saturated", "churn 20", "churn 100"}

// next returns the next request of a client.
func (s *scenario) next() load.Request {
	req := load.Request{Tokens: s.tokens, Prompt: s.prompt}
	if req.Tokens == 0 {
		req.Tokens = endless
	}
	if req.Prompt == "" {
		req.Prompt = shortPrompt
	}
	if s.life > 0 {
		req.Life = time.Duration((0.2 + 1.6*rand.Float64()) * float64(s.life))
	}
	return req
}

// Units of cost.
const (
	perToken   = "token"
	perRequest = "request"
	perLeave   = "leave"
)

// unit returns the scenario's unit of cost.
func (s *scenario) unit() string {
	switch {
	case s.storm:
		return perLeave
	case s.tokens > 0 && s.tokens < 100:
		return perRequest
	default:
		return perToken
	}
}
