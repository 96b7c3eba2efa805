package newcomer

import (
	"strings"
	"testing"

	"github.com/whence-dev/whence/internal/tier"
)

const tutorial = "../../docs/tutorial.md"

// A reading is one pass over a page.
type reading struct {
	*user
	t     *testing.T
	rest  []block
	first *terminal // the first terminal of the page
}

// next returns the next block, which must contain a text.
func (r *reading) next(has string) block {
	r.t.Helper()
	if len(r.rest) == 0 {
		r.t.Fatalf("the page has no block with %q", has)
	}
	b := r.rest[0]
	if r.rest = r.rest[1:]; !strings.Contains(b.text, has) {
		r.t.Fatalf("line %d: the next block is not the one with %q, but\n%s", b.line, has, b.text)
	}
	return b
}

// serve runs the services in the first terminal.
func (r *reading) serve(b block) {
	r.t.Helper()
	r.first = r.start("export WHENCE_LISTEN=$FIRST; " + r.adapt.Replace(b.text))
	r.await(r.first, "Ctrl-C drains")
}

// leave runs a request, and presses Ctrl-C when the answer has begun.
func (r *reading) leave(b block) {
	r.t.Helper()
	s := r.start(r.adapt.Replace(b.text))
	r.await(s, `"content":"`)
	s.interrupt()
}

// printed returns the output of a command as a function, for want.
func printed(output string) func() string { return func() string { return output } }

func TestReadme(t *testing.T) {
	r := &reading{user: newUser(t), t: t, rest: blocks(t, "../../README.md")}
	start := r.next("go run .\n")
	request := r.next("curl -N")
	log := r.next("client_gone")

	start.text = "go run . --pace 10\n" // the page says so before Ctrl-C
	r.serve(start)
	if out := r.run(request); !strings.Contains(out, "data: [DONE]") {
		t.Errorf("line %d: %s", request.line, out)
	}
	r.leave(request)
	r.want(r.first.output.String, log)
	r.tryCommands(r.next("go run . why"))
	r.first.interrupt()
	r.next("whence --upstream http://127.0.0.1:8000") // TestOneCommandInFrontOfAModelServer
	r.next("client ──SSE──>")
	if len(r.rest) != 0 {
		t.Errorf("line %d is not tested: %s", r.rest[0].line, r.rest[0].text)
	}
}

// tryCommands runs the commands of a table of commands and what they do, shortened where they would not end.
func (r *reading) tryCommands(table block) {
	r.t.Helper()
	shorter := strings.NewReplacer("go run . run", "go run . run --max-tokens 2 Hi", "go run . top", "go run . top --once",
		"why ID", "why $(go run . streams --ended --limit 1 | tail -1 | cut -d ' ' -f 1)", "go run . bench", "go run . bench --clients 1 --requests 1 --max-tokens 2")
	for line := range strings.Lines(table.text) {
		command, _, found := strings.Cut(line, "  ")
		if !found {
			r.t.Errorf("line %d does not say what its command does: %s", table.line, line)
		}
		if out := r.run(block{line: table.line, text: shorter.Replace(command) + "\n"}); strings.TrimSpace(out) == "" {
			r.t.Errorf("%s prints nothing", command)
		}
	}
}

// TestPageOfKitex runs the example of the page.
func TestPageOfKitex(t *testing.T) {
	r := &reading{user: newUser(t), t: t, rest: blocks(t, "../../docs/howto/kitex.md")}
	r.want(printed(r.run(r.next("go run ./examples/chat"))), r.next("browser: got What"))
	if len(r.rest) != 0 {
		t.Errorf("line %d is not tested: %s", r.rest[0].line, r.rest[0].text)
	}
}

func TestTutorial(t *testing.T) {
	tier.Full(t)
	r := &reading{user: newUser(t), t: t, rest: blocks(t, tutorial)}
	r.serve(r.next("go run . --pace 10"))
	r.want(r.first.output.String, block{text: "Whence streams whence-tiny on http://"})
	r.next("Whence streams whence-tiny on")

	if out := r.run(r.next("curl -N")); !strings.HasSuffix(strings.TrimSpace(out), "data: [DONE]") {
		t.Errorf("the stream did not complete: %s", out)
	}
	r.want(r.first.output.String, r.next("reason=completed"))

	r.leave(r.next("X-Request-Id: first"))
	r.want(r.first.output.String, r.next("stream=first"))
	r.want(printed(r.run(r.next("why first"))), r.next("client_gone by client"))

	stopped := printed(r.run(r.next("stop second")))
	r.want(stopped, r.next("STREAM"))
	r.want(stopped, r.next("second is stopping"))
	r.want(stopped, r.next("user_stop"))
	r.first.interrupt()
	r.apart()
	if len(r.rest) != 0 {
		t.Errorf("line %d is not tested: %s", r.rest[0].line, r.rest[0].text)
	}
}

// apart follows the sections about separate services.
func (r *reading) apart() {
	t := r.t
	t.Helper()
	r.first = r.open()
	r.paste(r.first, r.next("go build"))
	ready := r.next("/readyz")
	// "After a second": the path is ready as soon as one worker is, but a stream survives only if there are two.
	ready.text = "until " + strings.TrimSpace(ready.text) + " | grep '2 of 2'; do sleep 0.1; done\n"
	r.want(printed(r.run(ready)), r.next("ok: 2 of 2"))

	s := r.start(r.adapt.Replace(r.next("X-Request-Id: survivor").text))
	r.await(s, `"content":"`)
	where := r.paste(r.first, r.next("why survivor | grep"))
	r.want(printed(variable.ReplaceAllString(where, "N")), r.next("llm-worker/1   live"))
	kill := r.next("kill -9 %2")
	if strings.Contains(where, "llm-worker/0") {
		kill.text = "kill -9 %1\n" // the page explains the numbers
	}
	r.paste(r.first, kill)
	if <-s.ended; s.err != nil || !strings.HasSuffix(strings.TrimSpace(s.output.String()), "data: [DONE]") {
		t.Errorf("the stream did not survive: %v\n%s", s.err, s.output.String())
	}
	r.want(printed(r.paste(r.first, r.next("why survivor"))), r.next("survivor  ended"))
	r.want(printed(r.paste(r.first, r.next("grep moved"))), r.next(`msg="stream moved"`))
	stop := r.next("kill %1 %2 %3 %4")
	stop.text += "wait\n"
	r.paste(r.first, stop)
	if err := r.first.in.Close(); err != nil {
		t.Error(err)
	}
	<-r.first.ended // the status is that of kill
}
