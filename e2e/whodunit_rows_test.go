package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/internal/wstest"
	"github.com/whence-dev/whence/lab"
	"github.com/whence-dev/whence/pkg/streamerr"
)

var (
	slow = flags{worker: []string{"--pace", "40"}}
	// unread has the flags of a stream that fills the buffers between the edge and a client that
	// does not read.
	unread  = flags{worker: []string{"--pace", "200"}, api: []string{"--max-unsent", "4096", "--write-timeout", "1h"}}
	oneSlow = flags{worker: []string{"--pace", "40", "--max-running", "1", "--max-queued", "1"}}
	// apart has one worker that reads prompts, and one that answers.
	apart = flags{beside: true, left: []string{"--engine", "sim", "--role", "prefill"}, worker: []string{"--engine", "sim", "--role", "decode"}, chat: []string{"--handover-above", "0"}}
	// operated is slow with an operator's key.
	operated = flags{worker: slow.worker, api: []string{"--operator-key", "op"}}
)

// longID makes each event long.
var longID = strings.Repeat("so-that-events-are-long-", 5)

// rows lists the faults of the matrix. A kind of loss with several causes has several rows.
var rows = []row{
	{name: "client closes its connection", flags: slow, act: func(s *scene) *refusal {
		conn, r := s.openFlowing()
		s.fault(func() { _ = conn.CloseWrite() }) // sends a FIN; closing with unread data would send a reset
		_, _ = io.Copy(io.Discard, r)
		return nil
	}},
	{name: "client resets its connection", flags: slow, act: func(s *scene) *refusal {
		conn, _ := s.openFlowing()
		_ = conn.SetLinger(0)
		s.fault(func() { _ = conn.Close() })
		return nil
	}},
	{name: "client closes before the first token", flags: oneSlow, act: func(s *scene) *refusal {
		s.occupy()
		conn := s.dial(s.t, greedy(long, "stream", true), s.id)
		s.busy(s.t, 1, 1)
		s.fault(func() { _ = conn.Close() })
		return nil
	}},
	{name: "client closes a request for a whole answer", flags: slow, act: func(s *scene) *refusal {
		conn := s.dial(s.t, greedy(long), s.id)
		s.busy(s.t, 1, 0)
		s.fault(func() { _ = conn.Close() })
		return nil
	}},
	{name: "client closes while llm-worker hangs", flags: slow, act: func(s *scene) *refusal {
		l := s.open()
		resume := s.hang(s.t)
		s.fault(l.close)
		polltest.Eventually(s.t, "the hops before the worker have ended the stream", func() bool { return s.logged(api0) != "" && s.logged(chatService) != "" })
		resume()
		return nil
	}},
	{name: "client closes while its prompt is handed over", flags: apart, id: "fault:llm-worker:hold:1", act: (*scene).leaveInHandover},
	{name: "client closes its WebSocket", flags: slow, act: func(s *scene) *refusal {
		c := s.openConversation()
		s.fault(func() { c.Raw(wstest.CloseFrame(1001)) })
		return nil
	}},
	{name: "client resets its WebSocket", flags: slow, act: func(s *scene) *refusal {
		c := s.openConversation()
		s.fault(c.Reset)
		return nil
	}},
	{name: "client stops its conversation over a WebSocket", flags: slow, act: func(s *scene) *refusal {
		c := s.openConversation()
		s.fault(func() { c.Say(`{"stop":{}}`) })
		return s.refusalOver(c, 4003)
	}},
	{name: "llm-worker is killed during a conversation over a WebSocket", flags: slow, act: func(s *scene) *refusal {
		c := s.openConversation()
		s.fault(func() { s.procs[work].kill(s.t) })
		return s.refusalOver(c, 4009)
	}},
	{name: "DELETE of the stream", flags: slow, act: func(s *scene) *refusal {
		l := s.open()
		s.fault(func() { s.cancel(s.t, s.addrs[api0], s.id) })
		return l.failed(s.t)
	}},
	{name: "DELETE at the other replica", flags: slow, act: func(s *scene) *refusal {
		l := s.open()
		s.fault(func() { s.cancel(s.t, s.addrs[api1], s.id) })
		return l.failed(s.t)
	}},
	{name: "DELETE with the operator's key", flags: operated, act: func(s *scene) *refusal {
		l := s.open()
		s.fault(func() { s.cancel(s.t, s.addrs[api0], s.id, "Authorization", "Bearer op") })
		return l.failed(s.t)
	}},
	{name: "DELETE with the operator's key at the other replica", flags: operated, act: func(s *scene) *refusal {
		l := s.open()
		s.fault(func() { s.cancel(s.t, s.addrs[api1], s.id, "Authorization", "Bearer op") })
		return l.failed(s.t)
	}},
	{name: "abort_request of the stream", flags: slow, act: func(s *scene) *refusal {
		l := s.open()
		s.fault(func() { s.abort(s.addrs[api0]) })
		return l.failed(s.t)
	}},
	{name: "abort_request at the other replica", flags: slow, act: func(s *scene) *refusal {
		l := s.open()
		s.fault(func() { s.abort(s.addrs[api1]) })
		return l.failed(s.t)
	}},
	{name: "client's connection goes dead", flags: flags{worker: slow.worker, api: []string{"--client-timeout", "1s"}}, act: func(s *scene) *refusal {
		conn, _ := s.openFlowing()
		s.fault(func() { dropIncoming(s.t, conn) })
		return nil
	}},
	{name: "client reads a byte at a time", id: longID, flags: flags{worker: []string{"--pace", "200"}, api: []string{"--write-timeout", "500ms", "--max-unsent", "4096"}}, act: (*scene).readSlowly},
	{name: "DELETE of a stream that its client does not read", id: longID, flags: unread, act: func(s *scene) *refusal {
		s.requestUnread()
		s.fault(func() { s.cancel(s.t, s.addrs[api0], s.id) })
		return nil
	}},
	{name: "deadline of a stream that its client does not read", id: longID, flags: unread, act: func(s *scene) *refusal {
		begun := time.Now()
		s.requestUnread("timeout", 3)
		s.at = begun.Add(3 * time.Second)
		return nil
	}},
	{name: "api-service drains while a client does not read", id: longID, flags: drain(unread), act: func(s *scene) *refusal {
		s.requestUnread()
		s.drain(api0)
		s.procs[api0].exit(s.t)
		return nil
	}},
	{name: "deadline of the request", flags: slow, act: func(s *scene) *refusal {
		begun := time.Now()
		l := s.open("timeout", 0.7)
		s.at = begun.Add(700 * time.Millisecond)
		return l.failed(s.t)
	}},
	{name: "deadline of a gRPC caller", flags: slow, act: func(s *scene) *refusal {
		ctx, cancel := context.WithTimeout(s.t.Context(), 700*time.Millisecond)
		defer cancel()
		s.at = time.Now().Add(700 * time.Millisecond)
		wantCode(s.t, started(ctx, s.t, chatv1.NewChatClient(dialGRPC(s.t, s.chat)), s.id), codes.DeadlineExceeded)
		return nil
	}},
	{name: "api-service panics", flags: slow, id: "fault:api-service:panic:1", act: (*scene).builtInFault},
	{name: "api-service is killed", flags: slow, act: func(s *scene) *refusal { return s.killed(api0) }},
	{name: "api-service drains", flags: drain(slow), act: func(s *scene) *refusal { return s.drained(api0) }},
	{name: "api-service gets a second signal", flags: slow, act: func(s *scene) *refusal { return s.signaledTwice(api0) }},
	{name: "api-service gets a second signal while a client does not read", id: longID, flags: unread, act: func(s *scene) *refusal {
		s.requestUnread()
		s.signalAgain(api0)
		return nil
	}},
	{name: "chat-service panics", flags: slow, id: "fault:chat-service:panic:1", act: (*scene).builtInFault},
	{name: "chat-service is killed", flags: slow, act: func(s *scene) *refusal { return s.killed(chatService) }},
	{name: "chat-service drains", flags: drain(slow), act: func(s *scene) *refusal { return s.drained(chatService) }},
	{name: "chat-service gets a second signal", flags: slow, act: func(s *scene) *refusal { return s.signaledTwice(chatService) }},
	{name: "chat-service's handler cancels with a cause", flags: slow, id: "fault:chat-service:cancel:1", act: (*scene).builtInFault},
	{name: "client closes while a handler has wrapped its context", flags: slow, id: "fault:chat-service:wrap:1", act: func(s *scene) *refusal {
		l := s.open()
		s.fault(l.close)
		return nil
	}},
	{name: "llm-worker is killed, another one continues", flags: flags{moves: true, worker: slow.worker}, act: func(s *scene) *refusal {
		return s.moved("peer_lost", func() { s.procs[lost].kill(s.t) })
	}},
	{name: "llm-worker drains, another one continues", flags: drain(flags{moves: true, worker: slow.worker}), act: func(s *scene) *refusal {
		return s.moved("draining", func() { s.procs[lost].terminate(s.t) })
	}},
	{name: "llm-worker hangs, another one continues", flags: flags{moves: true, worker: slow.worker, chat: []string{"--migrate-after", "3s"}}, act: func(s *scene) *refusal {
		defer s.signal(lost, syscall.SIGCONT)
		return s.moved("deadline", func() { s.signal(lost, syscall.SIGSTOP) })
	}},
	{name: "upstream engine answers 500 at once, another worker answers", flags: flags{beside: true, worker: slow.worker}, left: answers(500), act: func(s *scene) *refusal {
		return s.answeredElsewhere("engine_failed", 0)
	}},
	{name: "upstream engine is silent and its probes fail, another worker answers", flags: flags{beside: true, worker: slow.worker}, left: hangs, act: func(s *scene) *refusal {
		return s.answeredElsewhere("unavailable", 0)
	}},
	{name: "upstream engine has no first token, another worker answers", flags: flags{beside: true, worker: slow.worker, chat: []string{"--first-token-move", "500ms"}}, left: isSilent, act: func(s *scene) *refusal {
		return s.answeredElsewhere("deadline", 0)
	}},
	{name: "upstream engine fails in mid-stream, another worker continues", flags: flags{beside: true, worker: slow.worker}, left: breaksOff(`data: {"error":{"message":"the engine is dead","code":500}}` + "\n\n"), act: func(s *scene) *refusal {
		return s.answeredElsewhere("engine_failed", 5)
	}},
	{name: "upstream engine closes once in mid-answer, another worker refuses the move", flags: flags{beside: true}, left: breaksOffOnce, upstream: answers(400), act: func(s *scene) *refusal {
		return s.answeredAfter(lost+" > "+work+": peer_lost at 5", work+" > "+lost+": invalid at 5")
	}},
	{name: "upstream engine of the only worker closes once in mid-answer", upstream: breaksOffOnce, act: func(s *scene) *refusal {
		return s.answeredAfter(work + " > " + work + ": peer_lost at 5")
	}},
	{name: "llm-worker is killed, another one refuses the move", flags: flags{beside: true, left: slow.worker}, upstream: answers(400), act: func(s *scene) *refusal {
		l := s.open()
		s.fault(func() { s.procs[lost].kill(s.t) })
		return l.failed(s.t)
	}},
	{name: "llm-worker is killed", flags: slow, act: func(s *scene) *refusal { return s.killed(work) }},
	{name: "llm-worker hangs", flags: flags{worker: slow.worker, chat: []string{"--stall-timeout", "500ms"}}, act: func(s *scene) *refusal {
		l := s.open()
		s.fault(func() { s.signal(work, syscall.SIGSTOP) })
		e := l.failed(s.t)
		s.signal(work, syscall.SIGCONT) // so that the worker can report its story
		return e
	}},
	{name: "llm-worker drains", flags: drain(slow), act: func(s *scene) *refusal { return s.drained(work) }},
	{name: "llm-worker gets a second signal", flags: slow, act: func(s *scene) *refusal { return s.signaledTwice(work) }},
	{name: "engine fails", flags: slow, id: "fault:llm-worker:fail:1", act: (*scene).builtInFault},
	{name: "engine panics", flags: slow, id: "fault:llm-worker:panic:1", act: (*scene).builtInFault},
	{name: "engine stalls and ignores stops", flags: flags{worker: append([]string{"--stall-timeout", "500ms"}, slow.worker...)}, id: "fault:llm-worker:stall:1", act: (*scene).builtInFault},
	{name: "upstream engine of the only worker closes in mid-answer again and again", upstream: breaksOff(""), act: (*scene).engineFailed},
	{name: "upstream engine sends garbage", upstream: breaksOff("data: <html>\n\n"), act: (*scene).engineFailed},
	{name: "upstream engine answers 400", upstream: answers(400), act: (*scene).refused},
	{name: "upstream engine answers 404", upstream: answers(404), act: (*scene).refused},
	{name: "upstream engine answers 429", upstream: answers(429), act: (*scene).refused},
	{name: "upstream engine answers 500", upstream: answers(500), act: (*scene).refused},
	{name: "upstream engine answers 503", upstream: answers(503), act: (*scene).refused},
	{name: "gRPC caller cancels", flags: slow, act: func(s *scene) *refusal {
		ctx, cancel := context.WithCancel(s.t.Context())
		st := started(ctx, s.t, chatv1.NewChatClient(dialGRPC(s.t, s.chat)), s.id)
		s.fault(cancel)
		wantCode(s.t, st, codes.Canceled)
		return nil
	}},
	{name: "gRPC caller is silent between turns", flags: flags{chat: []string{"--idle-timeout", "500ms"}}, act: func(s *scene) *refusal {
		talk := converse(s.t, chatv1.NewChatClient(dialGRPC(s.t, s.chat)), firstTurn("Hi", s.id))
		talk.hear()
		s.at = time.Now().Add(500 * time.Millisecond)
		_, l := talk.over()
		return l.refusal()
	}},
	{name: "chat-service drains between turns", act: func(s *scene) *refusal {
		talk := converse(s.t, chatv1.NewChatClient(dialGRPC(s.t, s.chat)), firstTurn("Hi", s.id))
		talk.hear()
		s.fault(func() { s.procs[chatService].terminate(s.t) })
		_, l := talk.over()
		return l.refusal()
	}},
	{name: "grpcurl is killed", flags: slow, act: (*scene).grpcurlKilled},
	{name: "operator stops it at chat-service", flags: slow, act: func(s *scene) *refusal {
		return s.operated("whence.chat.v1.Chat", chatService)
	}},
	{name: "operator stops it at llm-worker", flags: slow, act: func(s *scene) *refusal {
		return s.operated("whence.worker.v1.Worker", work)
	}},
	{name: "model does not exist", act: func(s *scene) *refusal {
		return s.whole(greedy(short, "model", "nobody"))
	}},
	{name: "request is not JSON", act: (*scene).unreadableRequest},
	{name: "prompt is too long", act: func(s *scene) *refusal {
		return s.whole(greedy(strings.Repeat("the fox in the harbor ", 2000)))
	}},
	{name: "api-service is out of file descriptors", act: (*scene).outOfDescriptors},
	{name: "llm-worker is full", flags: flags{worker: []string{"--pace", "40", "--max-running", "1", "--max-queued", "0"}}, act: func(s *scene) *refusal {
		s.occupy()
		return s.whole(greedy(short))
	}},
	{name: "no llm-worker is left", act: func(s *scene) *refusal {
		s.procs[work].kill(s.t)
		polltest.Eventually(s.t, "/readyz says so", func() bool { return s.readiness() == http.StatusServiceUnavailable })
		return s.whole(greedy(short))
	}},
	{name: "no chat-service is left", act: func(s *scene) *refusal {
		s.procs[chatService].kill(s.t)
		polltest.Eventually(s.t, "/readyz says so", func() bool { return s.readiness() == http.StatusServiceUnavailable })
		return s.whole(greedy(short))
	}},
}

// drain lets the processes drain for a moment only.
func drain(f flags) flags {
	f.all = append([]string{"--drain", "200ms"}, f.all...)
	return f
}

// builtInFault is a stream with a built-in fault.
func (s *scene) builtInFault() *refusal {
	l := s.open()
	e := l.failed(s.t)
	s.faultLogged()
	return e
}

// faultLogged sets the time of the fault to the time in the log of the faulty process.
func (s *scene) faultLogged() {
	for _, p := range s.procs {
		for _, r := range p.Records() {
			if r.Msg == "fault" {
				s.at = r.Time
			}
		}
	}
}

// engineFailed is a stream whose engine does not complete it.
func (s *scene) engineFailed() *refusal { return s.open().failed(s.t) }

// refused is a request that does not become a stream.
func (s *scene) refused() *refusal { return s.whole(greedy(short)) }

// moved is a stream whose worker is lost in mid-stream while another one is healthy: its client
// must not notice.
func (s *scene) moved(why string, lose func()) *refusal {
	l := s.open("max_tokens", 240)
	s.start(llmWorker, work, s.addrs[work], s.flags.all, s.flags.worker)
	s.healthy(work)
	s.fault(lose)
	got := l.completed(s.t)
	if want := run(s.t, allInOne, flags{}).answer(s.t, greedy(long, "max_tokens", 240)); got != want {
		s.t.Errorf("the client reads %q, but the undisturbed text is %q", got, want)
	}
	moves := s.record(chatService).GetMoves()
	if len(moves) != 1 || moves[0].GetFrom() != lost || moves[0].GetTo() != work || streamerr.Reason(moves[0].GetReason()).String() != why {
		s.t.Errorf("the ledger has the moves %v", moves)
	}
	return nil
}

// answeredElsewhere runs a stream whose first worker fails while another worker is healthy: its
// client must not notice.
func (s *scene) answeredElsewhere(why string, tokens int) *refusal {
	return s.answeredAfter(fmt.Sprintf("%s > %s: %s at %d", lost, work, why, tokens))
}

// movedTokens is max_tokens of a stream that is answered after moves.
const movedTokens = 20

// answeredAfter runs a stream that must be answered after these moves: its client must not notice.
func (s *scene) answeredAfter(moves ...string) *refusal {
	s.at = time.Now()
	resp, err := s.send(s.t, greedy(long, "max_tokens", movedTokens, "stream", true), s.id)
	if err != nil {
		s.t.Fatal(err)
	}
	l := newLive(resp)
	s.t.Cleanup(l.close)
	l.completed(s.t)
	var got []string
	for _, m := range s.record(chatService).GetMoves() {
		got = append(got, fmt.Sprintf("%s > %s: %s at %d", m.GetFrom(), m.GetTo(), streamerr.Reason(m.GetReason()).String(), m.GetTokens()))
	}
	if !slices.Equal(got, moves) {
		s.t.Errorf("the ledger has the moves %q, want %q", got, moves)
	}
	return nil
}

// killed kills a process.
func (s *scene) killed(hop string) *refusal {
	l := s.open()
	s.fault(func() { s.procs[hop].kill(s.t) })
	if hop == api0 {
		return nil
	}
	return l.failed(s.t)
}

// drained terminates a process, which waits briefly for its streams.
func (s *scene) drained(hop string) *refusal {
	l := s.open()
	s.drain(hop)
	e := l.failed(s.t)
	s.procs[hop].exit(s.t)
	return e
}

func (s *scene) signal(hop string, sig syscall.Signal) {
	s.t.Helper()
	s.procs[hop].signal(s.t, sig)
}

// abort is SGLang's way to stop a stream.
func (s *scene) abort(api string) {
	s.t.Helper()
	if r := replyTo(s.t)(s.do(s.t.Context(), http.MethodPost, "http://"+api+"/abort_request", ask{"rid": s.id})); r.status != http.StatusAccepted {
		s.t.Fatalf("abort_request: %d", r.status)
	}
}

// drain terminates a process that waits 200 ms for its streams.
func (s *scene) drain(hop string) {
	s.t.Helper()
	s.fault(func() { s.procs[hop].terminate(s.t) })
	s.at = s.at.Add(200 * time.Millisecond)
}

// signalAgain sends a process a second signal while it drains, and waits for its end.
func (s *scene) signalAgain(hop string) {
	s.t.Helper()
	p := s.procs[hop]
	p.terminate(s.t)
	p.logged(s.t, "that it drains", func(r record) bool { return strings.HasPrefix(r.Msg, "draining: live streams") })
	s.fault(func() { p.terminate(s.t) })
	p.exitWith(s.t, 130)
}

// signaledTwice is a stream of a process that gets a second signal.
func (s *scene) signaledTwice(hop string) *refusal {
	l := s.open()
	s.signalAgain(hop)
	return l.failed(s.t)
}

// narrow opens a connection with small buffers for unread data.
func (s *scene) narrow() net.Conn {
	s.t.Helper()
	dialer := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) {
			_ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096)
		})
	}}
	conn, err := dialer.DialContext(s.t.Context(), "tcp", s.api)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// requestUnread requests the stream, reads nothing, and returns once the edge has stopped writing.
func (s *scene) requestUnread(more ...any) {
	s.t.Helper()
	s.ask(s.t, s.narrow(), greedy(long, append(more, "stream", true, "ignore_eos", true)...), s.id)
	before, same := uint64(0), 0
	polltest.Eventually(s.t, "the edge has stopped writing", func() bool { // a blocked write gives no signal
		lab.Pause(s.t.Context(), 50*time.Millisecond)
		if n := s.written(); n == 0 || n != before {
			before, same = n, 0
			return false
		}
		same++
		return same >= 5
	})
}

// written returns the number of tokens of the stream that the edge has written.
func (s *scene) written() uint64 {
	s.t.Helper()
	var story struct{ Tokens struct{ Delivered uint64 } }
	if err := json.Unmarshal(s.get(s.t, "/v1/streams/"+s.id).body, &story); err != nil {
		return 0 // the stream does not exist yet
	}
	return story.Tokens.Delivered
}

// readSlowly reads the stream so slowly that the buffers between edge and client fill.
func (s *scene) readSlowly() *refusal {
	conn := s.narrow()
	s.at = time.Now()
	s.ask(s.t, conn, greedy(long, "stream", true), s.id)
	return s.readSlowlyFrom(conn)
}

// readSlowlyFrom reads a connection until the edge cuts it.
func (s *scene) readSlowlyFrom(conn net.Conn) *refusal {
	s.t.Helper()
	asked, b := 0, make([]byte, 1)
	polltest.Eventually(s.t, "the slow reader is cut", func() bool { // polls every millisecond
		if asked++; asked%20 == 0 {
			_, _ = conn.Read(b)
		}
		return s.logged(api0) != ""
	})
	return nil
}

// grpcurlKilled kills a grpcurl that reads the stream.
func (s *scene) grpcurlKilled() *refusal {
	path := grpcurlPath(s.t)
	body := fmt.Sprintf(`{"chat":{"stream_id":%q,"model":%q,"messages":[{"role":"user","content":%q}],"sampling":{"temperature":0}}}`, s.id, model, long)
	cmd := exec.CommandContext(s.t.Context(), path, "-plaintext", "-d", body, s.chat, "whence.chat.v1.Chat/Generate")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	defer cmd.Wait() // it was killed
	s.busy(s.t, 1, 0)
	s.fault(func() { _ = cmd.Process.Kill() })
	return nil
}

// operated stops the stream with grpcurl.
func (s *scene) operated(service, hop string) *refusal {
	l := s.open()
	if out, ok := grpcurl(s.t, s.addrs[hop], "-d", fmt.Sprintf(`{"stream":{"stream_id":%q}}`, s.id), service+"/Stop"); !ok || !strings.Contains(out, `"age"`) {
		s.t.Fatal(out)
	}
	e := l.failed(s.t)
	s.at = s.record(hop).GetStopHeard().AsTime() // grpcurl needs time to start
	return e
}

// unreadableRequest sends a request that cannot be parsed.
func (s *scene) unreadableRequest() *refusal {
	return replyTo(s.t)(s.do(s.t.Context(), http.MethodPost, s.url("/v1/chat/completions"), `{"model":`, idName, s.id)).completion(s.t).Error
}
