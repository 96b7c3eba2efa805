package edge_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/whence-dev/whence/api-service/edge"
	"github.com/whence-dev/whence/internal/logtest"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/internal/wstest"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A serverMessage is a message of the server of a dialogue.
type serverMessage struct {
	Type     string
	Status   int
	Delta    string
	Response storedResponse
	Error    struct {
		Code, Message, Param string
		Whence               struct{ Reason string }
	}
	Whence struct {
		Reason string
		Path   []string
	}
}

// dialogue opens a WebSocket of the Responses API.
func dialogue(t *testing.T, url string, headers ...string) *wstest.Client {
	t.Helper()
	c, refused := wstest.Dial(t, url+"/v1/responses", headers...)
	if c == nil {
		t.Fatal(refused)
	}
	return c
}

// create sends a message for a script.
func create(c *wstest.Client, script, more string) {
	c.Say(`{"type":"response.create","model":"m","input":"` + script + `"` + more + `}`)
}

// receiveMessage returns the next message.
func receiveMessage(t *testing.T, c *wstest.Client) (m serverMessage) {
	t.Helper()
	opcode, payload := c.Next()
	if opcode != wstest.Text || json.Unmarshal(payload, &m) != nil {
		t.Fatalf("frame %d: %q", opcode, payload)
	}
	return m
}

// receiveEnd reads to the end of a response, or to an error. It also returns the types of the
// messages before it.
func receiveEnd(t *testing.T, c *wstest.Client) (m serverMessage, types []string) {
	t.Helper()
	for {
		m = receiveMessage(t, c)
		types = append(types, m.Type)
		switch m.Type {
		case "response.completed", "response.failed", "response.incomplete", "error":
			return m, types
		}
	}
}

// wantRefused reads to an error, and checks its status, code and param.
func wantRefused(t *testing.T, c *wstest.Client, status int, code, param string) {
	t.Helper()
	if m, _ := receiveEnd(t, c); m.Type != "error" || m.Status != status || m.Error.Code != code || m.Error.Param != param {
		t.Errorf("%+v; want %d %s %s", m, status, code, param)
	}
}

// wantText reads to the end of a response, and checks its text.
func wantText(t *testing.T, c *wstest.Client, text string) storedResponse {
	t.Helper()
	m, _ := receiveEnd(t, c)
	if m.Type != "response.completed" || m.Response.text() != text || m.Whence.Reason != "completed" {
		t.Fatalf("%+v; want %s", m, text)
	}
	return m.Response
}

func previous(id string) string { return `,"previous_response_id":"` + id + `"` }

func TestADialogueContinuesResponsesThatAreNotStored(t *testing.T) {
	var log logtest.Log
	url, chat := startLogging(t, &log, nil)
	c := dialogue(t, url, "X-Request-Id", "mine")
	create(c, "start m say one end x", `,"store":false,"stream":true`)
	m, types := receiveEnd(t, c)
	want := []string{
		"response.created", "response.in_progress", "response.output_item.added", "response.content_part.added", "response.output_text.delta",
		"response.output_text.done", "response.content_part.done", "response.output_item.done", "response.completed",
	}
	first := m.Response
	if !slices.Equal(types, want) || first.text() != "one" || first.Store || first.ID != "resp_mine" {
		t.Fatalf("%v %+v", types, m)
	}
	polltest.Receive(t, "the beginning of a stream", chat.begun)
	create(c, "start m say two end x", previous(first.ID))
	second := wantText(t, c, "two")
	if second.ID == first.ID || second.Previous != first.ID {
		t.Errorf("%+v", second)
	}
	create(c, "start m say three end x", previous(second.ID))
	third := wantText(t, c, "three")
	if got := chat.contents(); !slices.Equal(got, []string{"start m say one end x", "one", "start m say two end x", "two", "start m say three end x"}) {
		t.Errorf("the chat-service got %q", got)
	}
	create(c, "x", previous(first.ID))
	wantRefused(t, c, http.StatusBadRequest, streamerr.CodePreviousNotFound, "previous_response_id")
	create(c, "start m say four end x", previous(third.ID)) // the failed turn named another response
	wantText(t, c, "four")
	for _, r := range []storedResponse{first, second, third} {
		id := strings.TrimPrefix(r.ID, "resp_")
		log.Await(t, "stream ended", "hop=api-service", "stream="+id, "reason=completed")
	}
	other := dialogue(t, url)
	create(other, "x", previous(third.ID))
	wantRefused(t, other, http.StatusBadRequest, streamerr.CodePreviousNotFound, "previous_response_id")
}

func TestAFailedTurnForgetsWhatItContinued(t *testing.T) {
	url, _ := start(t, nil)
	for name, f := range map[string]struct{ script, kind string }{
		"before the response": {"fail overloaded", "error"},
		"in the response":     {"start m say hi fail engine_failed", "response.failed"},
	} {
		t.Run(name, func(t *testing.T) {
			c := dialogue(t, url)
			create(c, "start m say one end x", "")
			first := wantText(t, c, "one")
			create(c, f.script, previous(first.ID))
			if m, _ := receiveEnd(t, c); m.Type != f.kind {
				t.Errorf("%+v", m)
			}
			create(c, "start m end x", previous(first.ID))
			wantRefused(t, c, http.StatusBadRequest, streamerr.CodePreviousNotFound, "previous_response_id")
			create(c, "start m say again end x", "")
			wantText(t, c, "again")
		})
	}
}

func TestADialogueContinuesAStoredResponse(t *testing.T) {
	url, chat := start(t, nil)
	stored := fetch(t, http.MethodPost, url+"/v1/responses", response("start m say one end x", `,"store":true`), http.StatusOK)
	c := dialogue(t, url)
	create(c, "start m say two end x", `,"store":true`+previous(stored.ID))
	second := wantText(t, c, "two")
	create(c, "start m say three end x", previous(second.ID))
	wantText(t, c, "three")
	if got := chat.contents(); len(got) != 5 || got[0] != "start m say one end x" {
		t.Errorf("the chat-service got %q", got)
	}
	if got := awaitStatus(t, url+"/v1/responses/"+second.ID, "completed"); got.text() != "two" {
		t.Errorf("%+v", got)
	}
}

func TestBadMessagesLeaveADialogueUsable(t *testing.T) {
	url, _ := start(t, func(c *edge.Config) { c.Strict = true })
	c := dialogue(t, url)
	create(c, "start m say one end x", "")
	first := wantText(t, c, "one")
	for message, want := range map[string][2]string{
		`hello`:                                                                {"", ""},
		`{"model":"m","input":"x"}`:                                            {streamerr.CodeMissing, "type"},
		`{"type":"response.cancel"}`:                                           {"invalid_value", "type"},
		`{"type":"response.create","input":"x"}`:                               {streamerr.CodeMissing, "model"},
		`{"type":"response.create","model":"m"}`:                               {streamerr.CodeMissing, "input"},
		`{"type":"response.create","generate":"no"}`:                           {streamerr.CodeInvalidType, "generate"},
		`{"type":"response.create","model":"m","input":"x","stream":false}`:    {streamerr.CodeUnsupportedValue, "stream"},
		`{"type":"response.create","model":"m","input":"x","background":true}`: {streamerr.CodeUnsupportedValue, "background"},
		`{"type":"response.create","model":"m","input":"x","stream_id":"a"}`:   {streamerr.CodeUnknownField, "stream_id"},
	} {
		c.Say(message)
		if m, _ := receiveEnd(t, c); m.Status != http.StatusBadRequest || m.Error.Param != want[1] || want[0] != "" && m.Error.Code != want[0] || m.Error.Whence.Reason != "invalid" {
			t.Errorf("%s: %+v", message, m)
		}
	}
	c.Send(wstest.Binary, []byte("{}"))
	wantRefused(t, c, http.StatusBadRequest, "", "")
	create(c, "start m say two end x", previous(first.ID))
	wantText(t, c, "two")
}

// TestLongMessagesOfADialogue: a message is as long as a body may be, and so is what the next one continues.
// Long messages of one owner share memory: one that finds none is refused, and its dialogue stays usable.
func TestLongMessagesOfADialogue(t *testing.T) {
	url, _ := start(t, func(c *edge.Config) { c.MaxBody = edge.DefaultMaxBody })
	long := `,"safety_identifier":"` + strings.Repeat("a", 5<<20) + `"`
	c := dialogue(t, url)
	create(c, "start m say one end x"+strings.Repeat(" ", 7<<19), "") // longer than what is kept without a share
	first := wantText(t, c, "one")
	create(c, "start m say two end x", long+previous(first.ID))
	second := wantText(t, c, "two")

	begun := wstest.Frame(wstest.Text, false, []byte(`{"type":"response.create"`+long))
	var others []*wstest.Client
	for range 4 {
		other := dialogue(t, url)
		other.Raw(begun)
		others = append(others, other)
	}
	polltest.Eventually(t, "a refusal while four long messages arrive", func() bool {
		create(c, "start m say more end x", long)
		m, _ := receiveEnd(t, c)
		if m.Type != "error" {
			return false
		}
		if m.Status != http.StatusTooManyRequests {
			t.Fatalf("%+v", m)
		}
		return true
	})
	create(c, "start m say short end x", "")
	wantText(t, c, "short")
	for _, other := range others {
		other.Reset()
	}
	polltest.Eventually(t, "an answer after the four have gone", func() bool {
		create(c, "start m say more end x", long)
		m, _ := receiveEnd(t, c)
		return m.Type == "response.completed"
	})
	create(c, "x", previous(second.ID)) // later responses have taken its place
	wantRefused(t, c, http.StatusBadRequest, streamerr.CodePreviousNotFound, "previous_response_id")
}

func TestResponsesOfADialogueRunOneAfterAnother(t *testing.T) {
	url, chat := start(t, nil)
	c := dialogue(t, url)
	create(c, "start m say one hold x end x", "")
	for receiveMessage(t, c).Type != "response.output_text.delta" {
	}
	for range 16 {
		create(c, "start m say more end x", "")
	}
	create(c, "start m say toomuch end x", "")
	wantRefused(t, c, http.StatusTooManyRequests, streamerr.CodeRateLimit, "")
	if n := len(chat.begun); n != 1 {
		t.Errorf("%d responses run at the same time", n)
	}
	close(chat.release)
	wantText(t, c, "one")
	for range 16 {
		wantText(t, c, "more")
	}
}

func TestAWarmUpIsContinued(t *testing.T) {
	url, chat := start(t, nil)
	c := dialogue(t, url)
	c.Say(`{"type":"response.create","model":"m","generate":false,"input":[],"instructions":"none"}`)
	m, _ := receiveEnd(t, c)
	if m.Type != "response.completed" || len(m.Response.Output) > 0 {
		t.Fatalf("%+v", m)
	}
	c.Say(`{"type":"response.create","model":"m","generate":false,"input":"start m say hello end x"` + previous(m.Response.ID) + `}`)
	m, _ = receiveEnd(t, c)
	if n := len(chat.begun); n != 0 {
		t.Errorf("%d streams have begun", n)
	}
	c.Say(`{"type":"response.create","model":"m","input":[]` + previous(m.Response.ID) + `}`)
	wantText(t, c, "hello")
}

func TestAClientThatClosesItsDialogueEndsTheResponse(t *testing.T) {
	for name, leave := range map[string]func(c *wstest.Client){
		"with a close frame": func(c *wstest.Client) { c.Raw(wstest.CloseFrame(1000)) },
		"without":            func(c *wstest.Client) { c.Reset() },
	} {
		t.Run(name, func(t *testing.T) {
			var log logtest.Log
			url, chat := startLogging(t, &log, nil)
			c := dialogue(t, url)
			create(c, "start m say hi wait 1m", "")
			m := receiveMessage(t, c)
			for receiveMessage(t, c).Type != "response.output_text.delta" {
			}
			leave(c)
			if cause := polltest.Receive(t, "the cause of the stop", chat.causes); streamerr.As(cause).Reason != streamerr.ClientGone {
				t.Error(cause)
			}
			log.Await(t, "stream ended", "hop=api-service", "stream="+strings.TrimPrefix(m.Response.ID, "resp_"), "reason=client_gone")
		})
	}
}

func TestAStoredResponseOutlivesItsDialogueWithDetach(t *testing.T) {
	url, chat := start(t, nil)
	c := dialogue(t, url, "X-Leave", "detach")
	create(c, "start m say hel hold x say lo end x", `,"store":true`)
	m := receiveMessage(t, c)
	for receiveMessage(t, c).Type != "response.output_text.delta" {
	}
	c.Reset()
	close(chat.release)
	if got := awaitStatus(t, url+"/v1/responses/"+m.Response.ID, "completed"); got.text() != "hello" {
		t.Errorf("%+v", got)
	}
}

func TestADialogueEndsAtItsLimit(t *testing.T) {
	t.Parallel()
	url, chat := start(t, func(c *edge.Config) { c.SocketLifetime = time.Second })
	c := dialogue(t, url)
	create(c, "start m say one hold x end x", "")
	for receiveMessage(t, c).Type != "response.output_text.delta" {
	}
	dialogue(t, url).End() // the limit of a later dialogue is over
	close(chat.release)
	wantText(t, c, "one")
	e := c.End()
	var m serverMessage
	if err := json.Unmarshal([]byte(e.Last()), &m); err != nil || m.Status != http.StatusBadRequest || m.Error.Code != streamerr.CodeSocketLimit || e.Code != 4006 {
		t.Errorf("%v %+v", err, e)
	}
}

func TestDrainEndsDialogues(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{"between responses": "start m say hi end x", "in a response": "start m say hi wait 1m"} {
		t.Run(name, func(t *testing.T) {
			var c *wstest.Client
			t.Run("edge", func(edgeT *testing.T) { // the edge drains at the end of this subtest
				url, chat := start(edgeT, func(c *edge.Config) { c.Grace = 50 * time.Millisecond })
				chat.stays = true
				c = dialogue(t, url)
				create(c, script, "")
				for receiveMessage(t, c).Type != "response.output_text.delta" {
				}
			})
			m, _ := receiveEnd(t, c)
			if e := c.End(); e.Code != 1012 || len(e.Messages) > 0 {
				t.Errorf("%+v", e)
			}
			if name == "in a response" && (m.Type != "response.failed" || m.Whence.Reason != "draining") {
				t.Errorf("%+v", m)
			}
		})
	}
}

func TestDialoguesAreWithinTheLimitsOfTheirKeys(t *testing.T) {
	keyed := keyFile(t, `keys: [{key: one, tenant: a, requests_per_minute: 1}]`)
	url, _ := start(t, keyed)
	if _, refused := wstest.Dial(t, url+"/v1/responses"); refused.Status != http.StatusUnauthorized {
		t.Errorf("%+v", refused)
	}
	c := dialogue(t, url, "Authorization", "Bearer one")
	create(c, "start m say one end x", "")
	wantText(t, c, "one")
	create(c, "start m say two end x", "")
	wantRefused(t, c, http.StatusTooManyRequests, streamerr.CodeRateLimit, "")
}

func TestTooManyDialogues(t *testing.T) {
	url, _ := start(t, func(c *edge.Config) { c.MaxStreams = 1 })
	c := dialogue(t, url)
	if _, refused := wstest.Dial(t, url+"/v1/responses"); refused.Status != http.StatusTooManyRequests || refused.Header.Get("Retry-After") == "" {
		t.Errorf("%+v", refused)
	}
	create(c, "start m say one end x", "")
	wantText(t, c, "one")
	if resp := ask(t, http.MethodGet, url+"/v1/responses", ""); resp.StatusCode != http.StatusUpgradeRequired {
		t.Error(fmt.Sprint(resp.StatusCode), whole(t, resp))
	}
}
