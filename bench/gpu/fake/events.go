package fake

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"log"
	"time"

	"github.com/go-zeromq/zmq4"
	"github.com/vmihailenco/msgpack/v5"
)

// A publisher publishes KV events in the form of vLLM and SGLang. A nil publisher publishes none.
type publisher struct {
	socket zmq4.Socket
	number uint64 // of the next batch; guarded by the server's mu
}

// publish binds the endpoint of a --kv-events-config.
func publish(config string) (*publisher, error) {
	var c struct {
		Endpoint string `json:"endpoint"`
	}
	if err := json.Unmarshal([]byte(config), &c); err != nil {
		return nil, err
	}
	p := &publisher{socket: zmq4.NewPub(context.Background(), zmq4.WithLogger(log.New(io.Discard, "", 0)))}
	return p, p.socket.Listen(c.Endpoint)
}

// stored publishes that a block is in the cache. parent is nil for the first block of a prompt.
func (p *publisher) stored(hash uint64, parent any, tokens []uint32) {
	if p == nil {
		return
	}
	type list = []any
	batch, err := msgpack.Marshal(list{float64(time.Now().UnixNano()) / 1e9, list{list{"BlockStored", list{hash}, parent, tokens, block, nil}}})
	if err != nil {
		return // cannot happen: numbers
	}
	frames := zmq4.NewMsgFrom([]byte{}, binary.BigEndian.AppendUint64(nil, p.number), batch)
	p.number++
	_ = p.socket.Send(frames) // nobody may listen
}
