package edge_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/whence-dev/whence/api-service/edge"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/internal/logtest"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/internal/wstest"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/methods"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A scriptedTalk is a conversation with a scriptedChat: the content of the last message of each turn
// is the script of its answer.
type scriptedTalk struct {
	first *chatv1.ChatRequest
	later *stream.Inbox[*chatv1.ConverseRequest]
}

var scriptedConverse = &rpc.Method[*scriptedTalk, chatv1.ConverseRequest, chatv1.ConverseResponse]{
	Opened: func(in *chatv1.ConverseRequest) (*scriptedTalk, bool) {
		return &scriptedTalk{in.GetChat(), stream.NewInbox[*chatv1.ConverseRequest](100, 1<<20)}, in.GetChat() != nil
	},
	Stopped:   func(in *chatv1.ConverseRequest) (*streamv1.Stop, bool) { return in.GetStop(), in.GetStop() != nil },
	Inbox:     func(s *scriptedTalk) *stream.Inbox[*chatv1.ConverseRequest] { return s.later },
	ID:        func(s *scriptedTalk) *string { return &s.first.StreamId },
	Started:   func(out *chatv1.ConverseResponse) bool { return out.GetStarted() != nil },
	PartEnded: func(out *chatv1.ConverseResponse) bool { return out.GetTurnEnd() != nil },
	Tokens:    func(out *chatv1.ConverseResponse) int { return int(out.GetDelta().GetTokens()) },
	End:       func(out *chatv1.ConverseResponse) *streamerr.Ending { return methods.Ending(out.GetEnd()) },
}

func (s *scriptedChat) Converse(st grpc.BidiStreamingServer[chatv1.ConverseRequest, chatv1.ConverseResponse]) error {
	return rpc.Serve(&s.hop, st, scriptedConverse, stream.Push(s.talk))
}

func (s *scriptedChat) talk(ctx context.Context, c *scriptedTalk) iter.Seq2[*chatv1.ConverseResponse, error] {
	return func(yield func(*chatv1.ConverseResponse, error) bool) {
		used := &llmv1.Usage{}
		for req := c.first; ; {
			for out, err := range s.play(ctx, req) {
				used.PromptTokens += out.GetEnd().GetUsage().GetPromptTokens()
				used.CachedTokens = new(used.GetCachedTokens() + out.GetEnd().GetUsage().GetCachedTokens())
				if err != nil {
					yield(nil, err)
					return
				}
				if !yield(turnOf(out), nil) {
					return
				}
			}
			in, err := c.later.Next(ctx)
			switch {
			case errors.Is(err, io.EOF):
				yield(&chatv1.ConverseResponse{Message: &chatv1.ConverseResponse_End{End: &llmv1.End{
					Reason: streamv1.Reason_REASON_COMPLETED, Path: []string{"engine"}, Finish: llmv1.Finish_FINISH_STOP, Usage: used,
				}}}, nil)
				return
			case err != nil:
				s.causes <- err
				yield(nil, err)
				return
			}
			req = &chatv1.ChatRequest{Messages: in.GetTurn().GetMessages()}
		}
	}
}

func turnOf(out *chatv1.GenerateResponse) *chatv1.ConverseResponse {
	switch m := out.GetMessage().(type) {
	case *chatv1.GenerateResponse_Started:
		return &chatv1.ConverseResponse{Message: &chatv1.ConverseResponse_Started{Started: m.Started}}
	case *chatv1.GenerateResponse_Delta:
		return &chatv1.ConverseResponse{Message: &chatv1.ConverseResponse_Delta{Delta: m.Delta}}
	default:
		return &chatv1.ConverseResponse{Message: &chatv1.ConverseResponse_TurnEnd{TurnEnd: &chatv1.TurnEnd{Finish: llmv1.Finish_FINISH_STOP, Usage: out.GetEnd().GetUsage()}}}
	}
}

// chatOf returns the first message of a conversation, and turnWith a later one.
func chatOf(script string) *chatv1.ConverseRequest {
	return &chatv1.ConverseRequest{Message: &chatv1.ConverseRequest_Chat{Chat: &chatv1.ChatRequest{Model: "m", Messages: []*chatv1.Message{{Role: "user", Content: script}}}}}
}

func turnWith(script string) *chatv1.ConverseRequest {
	return &chatv1.ConverseRequest{Message: &chatv1.ConverseRequest_Turn{Turn: &chatv1.Turn{Messages: []*chatv1.Message{{Role: "user", Content: script}}}}}
}

// say sends a message in a text frame.
func say(t *testing.T, c *wstest.Client, in *chatv1.ConverseRequest) {
	t.Helper()
	b, err := protojson.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	c.Send(wstest.Text, b)
}

// converse opens a conversation whose stream has the id "talk". An empty script sends no first
// message.
func converse(t *testing.T, url, script string, headers ...string) *wstest.Client {
	t.Helper()
	c, refused := wstest.Dial(t, url+"/v1/converse", append([]string{"X-Request-Id", "talk"}, headers...)...)
	if c == nil {
		t.Fatal(refused)
	}
	if script != "" {
		say(t, c, chatOf(script))
	}
	return c
}

// wantEnd checks the reason, the path and the close code of a conversation's ending.
func wantEnd(t *testing.T, e wstest.Ending, reason, path string, code int) {
	t.Helper()
	type jsonEnding struct {
		Reason string   `json:"reason"`
		Path   []string `json:"path"`
	}
	var m struct {
		Ending *jsonEnding
		Error  struct{ Whence *jsonEnding }
	}
	if err := json.Unmarshal([]byte(e.Last()), &m); err != nil {
		t.Fatalf("%v: %+v", err, e)
	}
	got := m.Error.Whence
	if reason == "completed" {
		got = m.Ending
	}
	if got == nil || got.Reason != reason || strings.Join(got.Path, " > ") != path || e.Code != code || !strings.HasPrefix(reason, e.Text) {
		t.Errorf("%d %q %s; want %d, %s, %s", e.Code, e.Text, e.Last(), code, reason, path)
	}
}

func TestConversationOverAWebSocket(t *testing.T) {
	var log logtest.Log
	url, _ := startLogging(t, &log, nil)
	c := converse(t, url, "start m say one end x")
	c.Until("turn_end")
	say(t, c, turnWith("start m say two end x"))
	say(t, c, turnWith("start m say three end x")) // sent early: the turn waits until the second turn is answered
	c.Until("turn_end")
	c.Until("turn_end")
	c.Say("{}")
	e := c.End()
	wantEnd(t, e, "completed", "engine > chat-service > api-service", 1000)
	log.Await(t, "stream ended", "hop=api-service", "stream=talk", "reason=completed")
	story := whole(t, ask(t, "GET", url+"/v1/streams/talk", ""))
	for _, want := range []string{`"reason":"completed"`, `"delivered":3`, `"leave":"cancel"`} {
		if !strings.Contains(story, want) {
			t.Errorf("the story has no %s: %s", want, story)
		}
	}
}

func TestBinaryConversation(t *testing.T) {
	url, _ := start(t, nil)
	c := converse(t, url, "")
	send := func(in *chatv1.ConverseRequest) {
		b, err := proto.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		c.Send(wstest.Binary, b)
	}
	long := strings.Repeat("long ", 300)[:1400] // a frame with a longer header
	send(chatOf("start m say " + strings.TrimSpace(strings.ReplaceAll(long, " ", "_")) + " end x"))
	text := ""
	for done := false; !done; {
		opcode, payload := c.Next()
		var out chatv1.ConverseResponse
		if err := proto.Unmarshal(payload, &out); opcode != wstest.Binary || err != nil {
			t.Fatal(opcode, payload, err)
		}
		text += out.GetDelta().GetText()
		done = out.GetTurnEnd() != nil
	}
	if len(text) < 1000 {
		t.Error(len(text))
	}
	send(&chatv1.ConverseRequest{})
	e := c.End()
	if e.Binary != 1 || len(e.Messages) != 1 {
		t.Errorf("%d binary and %d text messages; want the end, and the ending", e.Binary, len(e.Messages))
	}
	wantEnd(t, e, "completed", "engine > chat-service > api-service", 1000)
}

// TestClientThatLeavesAConversation checks that every way to leave stops the engine, or the wait
// for the next turn.
func TestClientThatLeavesAConversation(t *testing.T) {
	leaving := map[string]struct {
		leave func(c *wstest.Client)
		says  string // a part of the log line
	}{
		"a close frame": {func(c *wstest.Client) {
			c.Raw(wstest.CloseFrame(1001))
			if e := c.End(); e.Code != 1001 || len(e.Messages) > 0 && strings.Contains(e.Last(), "error") {
				t.Errorf("%+v", e)
			}
		}, "with the code 1001"},
		"a close frame without a code": {func(c *wstest.Client) {
			c.Send(wstest.Close, nil)
			if e := c.End(); e.Code != 1000 {
				t.Errorf("%+v", e)
			}
		}, "without a code"},
		"the end of the connection": {func(c *wstest.Client) { _ = c.Close() }, "closed its connection"},
		"a reset":                   {func(c *wstest.Client) { c.Reset() }, "closed its connection"},
	}
	for name, how := range leaving {
		for when, script := range map[string]string{"in an answer": "start m say hi wait 1m", "between turns": "start m say hi end x"} {
			t.Run(name+" "+when, func(t *testing.T) {
				var log logtest.Log
				url, chat := startLogging(t, &log, nil)
				c := converse(t, url, script)
				if when == "in an answer" {
					c.Until("delta")
				} else {
					c.Until("turn_end")
				}
				how.leave(c)
				cause := streamerr.As(polltest.Receive(t, "the cause of the stop", chat.causes))
				if cause.Reason != streamerr.ClientGone || cause.Path.String() != "client > api-service" {
					t.Error(cause)
				}
				log.Await(t, "stream ended", "hop=api-service", "reason=client_gone", how.says)
			})
		}
	}
}

// TestClientThatDoesNotAnswerPingsHasGone: the client's machine acknowledges everything, but its
// program does not answer.
func TestClientThatDoesNotAnswerPingsHasGone(t *testing.T) {
	t.Parallel()
	for when, script := range map[string]string{"in an answer": "start m say hi wait 1h", "between turns": "start m say hi end x"} {
		t.Run(when, func(t *testing.T) {
			t.Parallel()
			var log logtest.Log
			url, chat := startLogging(t, &log, func(c *edge.Config) { c.KeepAlive, c.ClientTimeout = 20*time.Millisecond, 2*time.Second })
			converse(t, url, script)
			if cause := streamerr.As(polltest.Receive(t, "the cause of the stop", chat.causes)); cause.Reason != streamerr.ClientGone || cause.Path.String() != "client > api-service" {
				t.Error(cause)
			}
			log.Await(t, "stream ended", "hop=api-service", "reason=client_gone", "not answered a ping for 2s")
		})
	}
}

func TestPingsOfAClientAreAnswered(t *testing.T) {
	url, _ := start(t, nil)
	c := converse(t, url, "")
	c.Send(wstest.Ping, []byte("are you there"))
	if opcode, payload, err := c.Read(); opcode != wstest.Pong || string(payload) != "are you there" || err != nil {
		t.Error(opcode, string(payload), err)
	}
}

func TestClientThatDoesNotReadAConversationIsTooSlow(t *testing.T) {
	t.Parallel()
	url, chat := start(t, func(c *edge.Config) { c.WriteTimeout = 200 * time.Millisecond })
	converse(t, url, "start m flood x")
	if cause := streamerr.As(polltest.Receive(t, "the cause of the stop", chat.causes)); cause.Reason != streamerr.SlowReader || cause.Path.String() != "api-service" {
		t.Error(cause)
	}
}

// TestConversationsEndWithTheReasonOfTheirStream checks that the client reads the ending and the close code
// of its reason.
func TestConversationsEndWithTheReasonOfTheirStream(t *testing.T) {
	const long = "start m say hi wait 1m"
	for name, c := range map[string]struct {
		script, headers string
		act             func(t *testing.T, url string, c *wstest.Client)
		reason, path    string
		code            int
	}{
		"deadline":           {long, "0.2", nil, "deadline", "api-service", 4006},
		"stop of the client": {long, "", func(_ *testing.T, _ string, c *wstest.Client) { c.Say(`{"stop":{}}`) }, "user_stop", "client > api-service", 4003},
		"stop between turns": {"start m end x", "", func(_ *testing.T, _ string, c *wstest.Client) { c.Say(`{"stop":{"message":"enough"}}`) }, "user_stop", "client > api-service", 4003},
		"DELETE": {long, "", func(t *testing.T, url string, _ *wstest.Client) {
			wantStatus(t, "DELETE", url+"/v1/streams/talk", "", "", 202)
		}, "user_stop", "client > api-service", 4003},
		"DELETE between turns": {"start m end x", "", func(t *testing.T, url string, _ *wstest.Client) {
			wantStatus(t, "DELETE", url+"/v1/streams/talk", "", "", 202)
		}, "user_stop", "client > api-service", 4003},
		"failure":                {"start m say hi fail peer_lost", "", nil, "peer_lost", "chat-service > api-service", 4009},
		"failure before a token": {"fail overloaded", "", nil, "overloaded", "chat-service > api-service", 1013},
		"panic":                  {"start m panic oops", "", nil, "internal", "chat-service > api-service", 1011},
		"no request":             {"", "", func(t *testing.T, _ string, c *wstest.Client) { say(t, c, turnWith("x")) }, "invalid", "api-service", 4012},
		"no turns":               {"", "", func(_ *testing.T, _ string, c *wstest.Client) { c.Say("{}") }, "invalid", "api-service", 4012},
		"a turn after the last":  {long, "", func(t *testing.T, _ string, c *wstest.Client) { c.Say("{}"); say(t, c, turnWith("x")) }, "invalid", "api-service", 4012},
		"too many turns": {long, "", func(t *testing.T, _ string, c *wstest.Client) {
			for range 65 {
				say(t, c, turnWith("x"))
			}
		}, "invalid", "api-service", 4012},
		"another id": {"", "", func(_ *testing.T, _ string, c *wstest.Client) { c.Say(`{"chat":{"stream_id":"other"}}`) }, "invalid", "api-service", 4012},
		"an answer to continue": {"", "", func(_ *testing.T, _ string, c *wstest.Client) {
			c.Say(`{"chat":{"tell_ids":true,"answered":{"ids":[1,2]}}}`)
		}, "invalid", "api-service", 4012},
		"choices to continue": {"", "", func(_ *testing.T, _ string, c *wstest.Client) {
			c.Say(`{"chat":{"tell_ids":true,"answered_choices":[{"ids":[1,2]}]}}`)
		}, "invalid", "api-service", 4012},
		"no JSON":       {long, "", func(_ *testing.T, _ string, c *wstest.Client) { c.Say("hello") }, "invalid", "api-service", 4012},
		"unknown field": {long, "", func(_ *testing.T, _ string, c *wstest.Client) { c.Say(`{"audio":{}}`) }, "invalid", "api-service", 4012},
		"unknown field within a message": {long, "", func(_ *testing.T, _ string, c *wstest.Client) {
			c.Say(`{"turn":{"messages":[{"role":"user","audio":{}}]}}`)
		}, "invalid", "api-service", 4012},
		"unknown field within a binary message": {long, "", func(t *testing.T, _ string, c *wstest.Client) {
			in := turnWith("x")
			in.GetTurn().GetMessages()[0].ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 999, protowire.VarintType), 1))
			b, err := proto.Marshal(in)
			if err != nil {
				t.Error(err)
			}
			c.Send(wstest.Binary, b)
		}, "invalid", "api-service", 4012},
		"too many messages in a message": {long, "", func(_ *testing.T, _ string, c *wstest.Client) {
			c.Say(`{"turn":{"messages":[{}` + strings.Repeat(",{}", 3000) + `]}}`)
		}, "invalid", "api-service", 4012},
		"too many messages in a binary message": {long, "", func(_ *testing.T, _ string, c *wstest.Client) {
			turn := protowire.AppendBytes(protowire.AppendTag(nil, 3, protowire.BytesType), bytes.Repeat([]byte{0x0a, 0}, 3000))
			c.Send(wstest.Binary, turn)
		}, "invalid", "api-service", 4012},
		"no protobuf": {long, "", func(_ *testing.T, _ string, c *wstest.Client) { c.Send(wstest.Binary, []byte("hello")) }, "invalid", "api-service", 4012},
		"no UTF-8":    {long, "", func(_ *testing.T, _ string, c *wstest.Client) { c.Say("\xff") }, "invalid", "api-service", 1007},
		"a long message": {long, "", func(_ *testing.T, _ string, c *wstest.Client) {
			c.Raw(wstest.Frame(wstest.Text, false, []byte(strings.Repeat(" ", 6000))))
			c.Raw(wstest.Frame(0, true, []byte(strings.Repeat(" ", 6000))))
		}, "invalid", "api-service", 1009},
		"a frame without a mask":  {long, "", func(_ *testing.T, _ string, c *wstest.Client) { c.Raw([]byte{0x81, 2, '{', '}'}) }, "invalid", "api-service", 1002},
		"a reserved opcode":       {long, "", func(_ *testing.T, _ string, c *wstest.Client) { c.Send(3, nil) }, "invalid", "api-service", 1002},
		"a lone continuation":     {long, "", func(_ *testing.T, _ string, c *wstest.Client) { c.Send(0, nil) }, "invalid", "api-service", 1002},
		"a long ping":             {long, "", func(_ *testing.T, _ string, c *wstest.Client) { c.Send(wstest.Ping, make([]byte, 126)) }, "invalid", "api-service", 1002},
		"a close code of nothing": {long, "", func(_ *testing.T, _ string, c *wstest.Client) { c.Raw(wstest.CloseFrame(1006)) }, "invalid", "api-service", 1002},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, _ := start(t, nil)
			headers := []string{"X-Leave", "cancel"}
			if c.headers != "" {
				headers = append(headers, "X-Request-Timeout", c.headers)
			}
			client := converse(t, url, c.script, headers...)
			switch {
			case c.act == nil:
			case c.script == long:
				client.Until("delta")
			case c.script != "":
				client.Until("turn_end")
			}
			if c.act != nil {
				c.act(t, url, client)
			}
			wantEnd(t, client.End(), c.reason, c.path, c.code)
		})
	}
}

func TestConversationWithoutARequestTimesOut(t *testing.T) {
	t.Parallel()
	url, _ := start(t, func(c *edge.Config) { c.ReadTimeout = time.Second })
	c := converse(t, url, "start m end x") // the read timeout applies to the first request, not to the turns
	c.Until("turn_end")
	silent, refused := wstest.Dial(t, url+"/v1/converse")
	if silent == nil {
		t.Fatal(refused)
	}
	wantEnd(t, silent.End(), "deadline", "api-service", 4006)
	c.Say("{}")
	wantEnd(t, c.End(), "completed", "engine > chat-service > api-service", 1000)
}

// TestDrainEndsConversations: a conversation that waits for its client ends at once, and a
// conversation that is being answered ends after the grace.
func TestDrainEndsConversations(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ script, until string }{
		"before the request": {"", ""},
		"between turns":      {"start m end x", "turn_end"},
		"in an answer":       {"start m say hi wait 1m", "delta"},
	} {
		t.Run(name, func(t *testing.T) {
			var client *wstest.Client
			t.Run("edge", func(edgeT *testing.T) { // the edge drains at the end of this subtest
				url, chat := start(edgeT, func(c *edge.Config) { c.Grace = 50 * time.Millisecond })
				chat.stays = true
				if client = converse(t, url, c.script); c.until != "" {
					client.Until(c.until)
				}
			})
			wantEnd(t, client.End(), "draining", "api-service", 1012)
		})
	}
}

func TestHandshakesAreRefused(t *testing.T) {
	keyed := keyFile(t, twoTenants)
	key := func(k string) string {
		return "whence.v1, whence.key." + base64.RawURLEncoding.EncodeToString([]byte(k))
	}
	url, _ := start(t, func(c *edge.Config) {
		keyed(c)
		c.Origins, c.OperatorKey, c.MaxStreams = []string{"https://app.example"}, "op", 1
	})
	host := strings.TrimPrefix(url, "http://")
	for name, c := range map[string]struct {
		headers []string
		status  int
		param   string
	}{
		"no key":                 {nil, 401, "Authorization"},
		"an unknown key":         {bearer("she"), 401, "Authorization"},
		"an unknown page's key":  {[]string{"Sec-WebSocket-Protocol", key("she")}, 401, "Authorization"},
		"a key that is not text": {[]string{"Sec-WebSocket-Protocol", "whence.v1, whence.key.=="}, 400, "Sec-WebSocket-Protocol"},
		"a key and no protocol":  {[]string{"Sec-WebSocket-Protocol", strings.TrimPrefix(key("me"), "whence.v1, ")}, 400, "Sec-WebSocket-Protocol"},
		"the operator's key":     {bearer("op"), 403, "Authorization"},
		"another origin":         {append(bearer("me"), "Origin", "https://evil.example"), 403, "Origin"},
		"no origin":              {append(bearer("me"), "Origin", "null"), 403, "Origin"},
		"another port":           {append(bearer("me"), "Origin", "http://localhost:1"), 403, "Origin"},
		"an unknown protocol":    {append(bearer("me"), "Sec-WebSocket-Protocol", "mqtt"), 400, "Sec-WebSocket-Protocol"},
		"an old version":         {append(bearer("me"), "Sec-WebSocket-Version", "8"), 101, ""}, // the first header counts
		"a policy":               {append(bearer("me"), "X-Leave", "detach"), 400, "X-Leave"},
		"a timeout":              {append(bearer("me"), "X-Request-Timeout", "soon"), 400, "X-Request-Timeout"},
		"the same origin":        {append(bearer("me"), "Origin", url), 101, ""},
		"a listed origin":        {append(bearer("me"), "Origin", "https://app.example"), 101, ""},
		"a page's key":           {[]string{"Origin", "http://" + strings.ToUpper(host), "Sec-WebSocket-Protocol", key("me")}, 101, ""},
	} {
		client, answer := wstest.Dial(t, url+"/v1/converse", c.headers...)
		if answer.Status != c.status || answer.Header.Get("X-Request-Id") == "" || c.param != "" && !strings.Contains(answer.Body, `"param":"`+c.param+`"`) {
			t.Errorf("%s: %+v", name, answer)
		}
		if client == nil {
			if answer.Header.Get("Sec-WebSocket-Accept") != "" {
				t.Errorf("%s: %+v", name, answer)
			}
			continue
		}
		if got, want := answer.Header.Get("Sec-WebSocket-Protocol"), ""; name == "a page's key" && got != "whence.v1" || name != "a page's key" && got != want {
			t.Errorf("%s: the protocol is %q", name, got)
		}
		if _, full := wstest.Dial(t, url+"/v1/converse", bearer("me")...); full.Status != 429 || full.Header.Get("Retry-After") == "" || full.Header.Get("Sec-WebSocket-Accept") != "" {
			t.Errorf("%s: a second one gets %+v", name, full)
		}
		client.Raw(wstest.CloseFrame(1000))
		client.End()
		polltest.Eventually(t, "no stream is live", func() bool {
			return whole(t, ask(t, "GET", url+"/v1/streams", "", bearer("me")...)) == noStreams
		})
	}
	if resp := ask(t, "GET", url+"/v1/converse", "", bearer("me")...); resp.StatusCode != http.StatusUpgradeRequired || resp.Header.Get("Upgrade") != "websocket" {
		t.Error(resp.StatusCode, resp.Header, whole(t, resp))
	} else {
		_ = whole(t, resp)
	}
}

// TestKeysOfConversations checks that a conversation belongs to the tenant of its key, in a header
// or in the protocols.
func TestKeysOfConversations(t *testing.T) {
	url, chat := start(t, keyFile(t, twoTenants))
	c := converse(t, url, "start m say hi wait 1m", "Sec-WebSocket-Protocol", "whence.v1, whence.key."+base64.RawURLEncoding.EncodeToString([]byte("me")))
	c.Until("delta")
	if claim := chat.claim.Load(); claim.GetTenant() != "mine" || claim.GetOwner() == "" {
		t.Error(claim)
	}
	wantStatus(t, "DELETE", url+"/v1/streams/talk", "", "you", 404)
	wantStatus(t, "DELETE", url+"/v1/streams/talk", "", "me-too", 202)
	wantEnd(t, c.End(), "user_stop", "client > api-service", 4003)
}

// TestMessageJustBeforeTheEndCounts: a message that the client has sent wins over the end of the
// connection that arrives in the same packet.
func TestMessageJustBeforeTheEndCounts(t *testing.T) {
	for name, c := range map[string]struct {
		last         []byte
		reason, says string
	}{
		"a stop":        {wstest.Frame(wstest.Text, true, []byte(`{"stop":{"message":"enough"}}`)), "user_stop", "enough"},
		"a close frame": {wstest.CloseFrame(1001), "client_gone", "with the code 1001"},
	} {
		t.Run(name, func(t *testing.T) {
			var log logtest.Log
			url, _ := startLogging(t, &log, nil)
			for i := range 20 {
				id := fmt.Sprintf("talk-%d", i)
				client, refused := wstest.Dial(t, url+"/v1/converse", "X-Request-Id", id)
				if client == nil {
					t.Fatal(refused)
				}
				say(t, client, chatOf("start m say hi wait 1m"))
				client.Until("delta")
				client.RawEnd(c.last)
				log.Await(t, "stream ended", "hop=api-service", "stream="+id+" ", "reason="+c.reason, c.says)
			}
		})
	}
}
