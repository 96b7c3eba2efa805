package e2e

import (
	"encoding/json"

	"github.com/whence-dev/whence/internal/wstest"
)

// openConversation opens the stream as a conversation over a WebSocket, and returns at the first
// text.
func (s *scene) openConversation() *wstest.Client {
	s.t.Helper()
	return s.converse(wstest.Dial(s.t, s.url("/v1/converse"), idName, s.id))
}

// converse begins the conversation of a handshake.
func (s *scene) converse(c *wstest.Client, refused *wstest.Refusal) *wstest.Client {
	s.t.Helper()
	if c == nil {
		s.t.Fatal(refused)
	}
	c.Say(`{"chat":{"model":"whence-tiny","messages":[{"role":"user","content":"Tell me a long story about a fox."}],"sampling":{"temperature":0,"max_tokens":900}}}`)
	c.Until("delta")
	return c
}

// refusalOver returns the error of a conversation's ending, and checks the code of its close frame.
func (s *scene) refusalOver(c *wstest.Client, code int) *refusal {
	s.t.Helper()
	e := c.End()
	var last struct{ Error *refusal }
	if err := json.Unmarshal([]byte(e.Last()), &last); err != nil || last.Error == nil || e.Code != code {
		s.t.Fatalf("%v: %d, want %d; %s", err, e.Code, code, e.Last())
	}
	return last.Error
}
