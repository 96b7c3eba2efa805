package reader

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"golang.org/x/net/websocket"
)

// A Conversation is a stream with two turns. It is idle between them.
type Conversation struct {
	socket  *websocket.Conn
	answers chan answer // closed when the connection is over; the buffer has room for one turn
}

const (
	turnTokens = 5
	turnWithin = time.Minute
)

type message map[string]any

// An answer is a message of the service.
type answer struct {
	Delta   *struct{ Text string }
	TurnEnd *struct{} `json:"turn_end"`
	Ending  *struct{ Reason string }
	Error   *struct{ Message string }
}

// turn returns a message of the user.
func turn(text string) message {
	return message{"messages": []message{{"role": "user", "content": text}}}
}

// Converse opens a conversation and returns it after its first turn.
func Converse(ctx context.Context, addr, id string) (c *Conversation, text string, err error) {
	config, err := websocket.NewConfig("ws://"+addr+"/v1/converse", "http://"+addr)
	if err != nil {
		return nil, "", err
	}
	config.Header = http.Header{"X-Request-Id": {id}}
	socket, err := config.DialContext(ctx)
	if err != nil {
		return nil, "", err
	}
	c = &Conversation{socket: socket, answers: make(chan answer, 4*turnTokens)}
	go c.listen()
	chat := turn(Prompt)
	chat["model"], chat["sampling"] = Model, message{"temperature": 0, "seed": 1, "max_tokens": turnTokens, "ignore_eos": true}
	text, err = c.ask(message{"chat": chat})
	return c, text, err
}

// listen receives answers, and answers pings, until the connection is over.
func (c *Conversation) listen() {
	defer close(c.answers)
	for {
		var a answer
		if err := websocket.JSON.Receive(c.socket, &a); err != nil {
			return
		}
		c.answers <- a
	}
}

// ask sends a message and returns the text of the turn that answers it.
func (c *Conversation) ask(m message) (string, error) {
	if err := websocket.JSON.Send(c.socket, m); err != nil {
		return "", err
	}
	late := time.After(turnWithin)
	var text strings.Builder
	for {
		select {
		case a, open := <-c.answers:
			switch {
			case !open:
				return "", errors.New("the connection has ended without an ending")
			case a.Error != nil:
				return "", fmt.Errorf("the conversation has failed: %s", a.Error.Message)
			case a.Ending != nil:
				return text.String(), fmt.Errorf("the conversation has ended with %s: %w", a.Ending.Reason, errEnded)
			case a.Delta != nil:
				text.WriteString(a.Delta.Text)
			case a.TurnEnd != nil:
				return text.String(), nil
			}
		case <-late:
			return "", fmt.Errorf("no answer within %v", turnWithin)
		}
	}
}

var errEnded = errors.New("no further turn")

// Again has a second turn, ends the conversation, and returns the turn's text.
func (c *Conversation) Again() (string, error) {
	text, err := c.ask(message{"turn": turn("And then?")})
	if err != nil {
		return "", err
	}
	if _, err := c.ask(message{}); !errors.Is(err, errEnded) {
		return "", fmt.Errorf("the conversation does not end: %w", err)
	}
	return text, nil
}

// Close closes the connection, and waits until listen has returned.
func (c *Conversation) Close() error {
	err := c.socket.Close()
	for range c.answers {
		continue
	}
	return err
}
