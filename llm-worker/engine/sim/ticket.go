package sim

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"maps"
	"time"

	"github.com/whence-dev/whence/pkg/kvblock"
)

const (
	// ticketTTL is how long what was read is kept for whom it was read for.
	ticketTTL = time.Minute
	// maxTickets bounds those that are remembered as used; past it a decode worker reads prompts itself.
	maxTickets = 1 << 16
)

// A ticket is what a prompt is handed over with. Its form is about that of vLLM's kv_transfer_params. A simulator has nothing that
// another one could fetch, so a ticket says all that there is to check: what was read, and until when it is good.
type ticket struct {
	RemotePrefill bool   `json:"do_remote_prefill"`
	RemoteDecode  bool   `json:"do_remote_decode"`
	Engine        string `json:"remote_engine_id"`
	Request       string `json:"remote_request_id"`
	Tokens        int    `json:"tokens"`
	Prompt        uint64 `json:"prompt,string"`
	Expires       int64  `json:"expires"` // Unix time, in milliseconds
}

const ticketEngine = "whence-sim"

// newTicket returns the parameters with which a prompt that was read is handed over.
func newTicket(prompt []uint32) string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	b, err := json.Marshal(ticket{
		RemotePrefill: true, Engine: ticketEngine, Request: hex.EncodeToString(id[:]), Tokens: len(prompt), Prompt: kvblock.Next(0, prompt),
		Expires: time.Now().Add(ticketTTL).UnixMilli(),
	})
	if err != nil {
		panic(err) // a plain struct of strings and numbers
	}
	return string(b)
}

// tickets are those that were used here, with the time when they would be of no use anyway. They are owned by whoever calls Join.
type tickets map[string]int64

// redeem reports whether parameters are a ticket for this prompt that is good, and was not used here before.
func (t *tickets) redeem(parameters []byte, prompt []uint32) bool {
	var p ticket
	if json.Unmarshal(parameters, &p) != nil {
		return false
	}
	now := time.Now().UnixMilli()
	_, used := (*t)[p.Request]
	if used || !p.RemotePrefill || p.Engine != ticketEngine || p.Request == "" || p.Expires <= now || p.Tokens != len(prompt) || p.Prompt != kvblock.Next(0, prompt) {
		return false
	}
	if *t == nil {
		*t = make(tickets)
	}
	if len(*t) >= maxTickets {
		maps.DeleteFunc(*t, func(_ string, expires int64) bool { return expires <= now })
	}
	if len(*t) >= maxTickets {
		return false
	}
	(*t)[p.Request] = p.Expires
	return true
}
