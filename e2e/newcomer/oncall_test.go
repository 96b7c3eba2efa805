package newcomer

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/whence-dev/whence/internal/loopback"
	"github.com/whence-dev/whence/internal/tier"
)

// firstCommand matches the command of a section of the runbook.
var firstCommand = regexp.MustCompile("(?m)^- \\*\\*First command:\\*\\* `(.+)`$")

// firstCommands returns the first command of each section of the runbook, by heading.
func firstCommands(t *testing.T) map[string]string {
	t.Helper()
	page, err := os.ReadFile("../../docs/howto/on-call.md")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, section := range strings.Split(string(page), "\n### ")[1:] {
		heading, text, _ := strings.Cut(section, "\n")
		if command := firstCommand.FindStringSubmatch(text); command != nil {
			all[heading] = command[1]
		}
	}
	return all
}

// TestRunbook plays faults, and runs the first command of each section of the runbook: it works, and it
// shows the fault and who caused it where the section is about a fault that was played.
func TestRunbook(t *testing.T) {
	tier.Full(t)
	u := newUser(t)
	metrics, err := loopback.FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	u.env = append(u.env, "WHENCE_OPERATOR_KEY=operator", "METRICS="+metrics)
	shell := u.open()
	u.paste(shell, block{text: `go build -o bin/ .
bin/whence worker --name llm-worker/0 --listen 127.0.0.1:8082 --pace 5 >bin/worker.log 2>&1 & WORKER=$!
bin/whence chat --worker 127.0.0.1:8082 >bin/chat.log 2>&1 & CHAT=$!
bin/whence api --chat 127.0.0.1:8081 --metrics-listen $METRICS --max-streams 3 >bin/api.log 2>&1 & API=$!
until curl http://127.0.0.1:8080/readyz | grep '1 of 1'; do sleep 0.1; done
ask() { $RUN curl -N http://127.0.0.1:8080/v1/chat/completions -H 'Content-Type: application/json' -H "X-Request-Id: $1" -d '{"model":"'"${3:-whence-tiny}"'","stream":true,"temperature":0,'"$2"'"messages":[{"role":"user","content":"What happens when I close the tab?"}]}'; }
LONG='"ignore_eos":true,"max_tokens":900,'
begun() { until bin/whence streams | grep "^$1 .* live *[1-9]"; do sleep 0.1; done; }
ask completed '"max_tokens":2,'
ask deadline '"timeout":1,'
ask not_found '' nobody
ask invalid '"top_k":-7,'
RUN=exec ask client_gone "$LONG" >bin/gone.log & CLIENT=$!; begun client_gone; kill $CLIENT
ask operator_stop "$LONG" >bin/stopped.log & begun operator_stop; bin/whence stop operator_stop
until bin/whence streams 2>&1 | grep 'no live streams'; do sleep 0.1; done
ask one "$LONG" >bin/one.log & ask two "$LONG" >bin/two.log & ask peer_lost "$LONG" >bin/lost.log & begun one; begun two; begun peer_lost
ask overloaded ''
kill -9 $WORKER
until bin/whence top --once | grep 'llm-worker/0 down'; do sleep 0.1; done
ask unavailable ''
`})
	commands := firstCommands(t)
	if len(commands) != 24 {
		t.Errorf("%d sections of the runbook have a first command", len(commands))
	}
	shown := map[string]string{ // by heading
		"completed": "completed by engine", "client_gone": "client_gone by client", "operator_stop": "operator_stop by operator", "deadline": "deadline by api-service",
		"not_found": "not_found by chat-service", "peer_lost": "peer_lost by llm-worker/0", "unavailable": "unavailable by chat-service",
		"WhenceStreamsFail": "peer_lost by llm-worker/0", "WhenceStopSlow": "client_gone by client", "WhenceNoHealthyWorker": "llm-worker/0 down", "WhenceFirstTokenSlow": "first token",
		"WhenceDown": "no healthy worker", "WhenceOutOfDescriptors": "process_max_fds", "WhenceScrapeSlow": "go_gc_gomemlimit_bytes", "unauthenticated": "whence_requests_refused_total",
	}
	for heading, command := range commands {
		command = strings.ReplaceAll(strings.ReplaceAll(command, "whence ", "bin/whence "), "127.0.0.1:9080", metrics)
		if out := u.run(block{text: command + "\n"}); !strings.Contains(out, shown[heading]) {
			t.Errorf("%s: %s does not show %q:\n%s", heading, command, shown[heading], out)
		}
	}
	u.paste(shell, block{text: "kill $CHAT $API; wait $CHAT $API\n"})
	if err := shell.in.Close(); err != nil {
		t.Error(err)
	}
	<-shell.ended
}
