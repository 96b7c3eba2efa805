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
	// ticketTTL is the time for which a prefilled prompt is kept for the decode worker.
	ticketTTL = time.Minute
	// maxTickets bounds the tickets remembered as used; above it a decode worker reads prompts
	// itself.
	maxTickets = 1 << 16
)

// A ticket is the handover parameters of a prefilled prompt. Its form resembles vLLM's
// kv_transfer_params. A simulator has no KV cache that another one could fetch, so the ticket holds
// only what can be checked: the prompt, and an expiry.
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

// newTicket returns the handover parameters of a prefilled prompt.
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

// tickets maps the used tickets to their expiry times. The caller of Join owns the map.
type tickets map[string]int64

// redeem reports whether parameters are a valid ticket for this prompt that was not used here
// before.
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
