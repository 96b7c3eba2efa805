package websocket

import (
	"bytes"
	"crypto/sha1" //nolint:gosec // the protocol's choice
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/cloudwego/hertz/pkg/app"

	"github.com/whence-dev/whence/api-service/edge/clientconn"
	"github.com/whence-dev/whence/api-service/edge/exchange"
	"github.com/whence-dev/whence/api-service/gate"
	"github.com/whence-dev/whence/api-service/keys"
	"github.com/whence-dev/whence/pkg/streamerr"
)

const (
	// Protocol is the subprotocol that the edge selects. A client that offers subprotocols must
	// offer this one: browsers close a WebSocket whose server selects none of theirs.
	Protocol = "whence.v1"
	// KeyPrefix begins a subprotocol that carries an API key, in unpadded base64url. Pages cannot
	// set headers of a WebSocket.
	KeyPrefix = "whence.key."

	protocolHeader = "Sec-WebSocket-Protocol"
)

// Requested reports whether a request asks for a WebSocket.
func Requested(c *app.RequestContext) bool {
	return strings.EqualFold(strings.TrimSpace(string(c.GetHeader("Upgrade"))), "websocket")
}

// TakeKey moves the API key of a request for a WebSocket from the subprotocols to the Authorization
// header, where all code expects it. A request that already has an Authorization header keeps that.
func TakeKey(c *app.RequestContext) error {
	if !Requested(c) {
		return nil
	}
	offered := protocols(c)
	rest := slices.DeleteFunc(slices.Clone(offered), func(p string) bool { return strings.HasPrefix(p, KeyPrefix) })
	if len(rest) == len(offered) {
		return nil
	}
	c.Request.Header.Del(protocolHeader) // the key must be neither logged nor selected
	if !slices.Contains(rest, Protocol) {
		return unnamed()
	}
	c.Request.Header.Set(protocolHeader, strings.Join(rest, ", "))
	if len(c.GetHeader(keys.Header)) > 0 {
		return nil
	}
	for _, p := range offered {
		text, found := strings.CutPrefix(p, KeyPrefix)
		if !found {
			continue
		}
		key, err := base64.RawURLEncoding.DecodeString(text)
		if err != nil || bytes.ContainsAny(key, "\r\n\x00") {
			return streamerr.InvalidParam(protocolHeader, "the key after %s must be in base64url, without padding", KeyPrefix)
		}
		c.Request.Header.Set(keys.Header, "Bearer "+string(key))
		return nil
	}
	return nil
}

// protocols returns the subprotocols that a request offers.
func protocols(c *app.RequestContext) []string {
	var all []string
	for _, line := range c.Request.Header.PeekAll(protocolHeader) {
		for p := range strings.SplitSeq(string(line), ",") {
			if p = strings.TrimSpace(p); p != "" {
				all = append(all, p)
			}
		}
	}
	return all
}

// wsVersion is the version of the WebSocket protocol.
const wsVersion = "13"

// unnamed returns the error for a client that does not offer Protocol.
func unnamed() error {
	return streamerr.InvalidParam(protocolHeader, "%s does not name %s", protocolHeader, Protocol)
}

// A Handshake is a request for a WebSocket that has passed all checks. The caller calls Accept or
// Cancel.
type Handshake struct {
	c *app.RequestContext
}

// Check checks a request for a WebSocket. Browsers let any page open a WebSocket, with cookies and
// to addresses of the local network. So a page must be of the same origin, or of an origin that g
// lists. Programs other than browsers send no Origin.
func Check(c *app.RequestContext, g *gate.Gate) (*Handshake, error) {
	if !Requested(c) {
		c.Header("Upgrade", "websocket")
		return nil, exchange.WithStatus(http.StatusUpgradeRequired, streamerr.InvalidParam("Upgrade", "%s is a WebSocket: Upgrade must be websocket", c.Path()))
	}
	if version := string(c.GetHeader("Sec-WebSocket-Version")); version != wsVersion {
		c.Header("Sec-WebSocket-Version", wsVersion)
		return nil, exchange.WithStatus(http.StatusUpgradeRequired, streamerr.InvalidParam("Sec-WebSocket-Version", "Sec-WebSocket-Version is %.32q; it must be %s", version, wsVersion))
	}
	if origin := string(c.GetHeader("Origin")); !g.Socket(origin, string(c.Host())) {
		return nil, &streamerr.Error{Reason: streamerr.Forbidden, Param: "Origin",
			Message: fmt.Sprintf("pages of %.64q may not open a WebSocket here; --cors-origin allows an origin", origin)}
	}
	if named := protocols(c); len(named) > 0 && !slices.Contains(named, Protocol) {
		return nil, unnamed()
	}
	key := string(c.GetHeader("Sec-WebSocket-Key"))
	switch {
	case !c.IsGet():
		return nil, exchange.WithStatus(http.StatusMethodNotAllowed, streamerr.New(streamerr.Invalid, "a WebSocket begins with GET"))
	case !upgrades(c):
		return nil, streamerr.InvalidParam("Connection", "Connection must name Upgrade")
	case key == "":
		return nil, streamerr.InvalidParam("Sec-WebSocket-Key", "Sec-WebSocket-Key is missing")
	}
	c.SetStatusCode(http.StatusSwitchingProtocols)
	c.Header("Upgrade", "websocket")
	c.Header("Connection", "Upgrade")
	c.Header("Sec-WebSocket-Accept", accept(key))
	if len(protocols(c)) > 0 {
		c.Header(protocolHeader, Protocol)
	}
	return &Handshake{c}, nil
}

// upgrades reports whether the header Connection of a request names Upgrade.
func upgrades(c *app.RequestContext) bool {
	for _, line := range c.Request.Header.PeekAll("Connection") {
		for word := range strings.SplitSeq(string(line), ",") {
			if strings.EqualFold(strings.TrimSpace(word), "upgrade") {
				return true
			}
		}
	}
	return false
}

// accept returns the value that proves that a server knows WebSockets (RFC 6455, section 4.2.2).
func accept(key string) string {
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11")) //nolint:gosec // the protocol's choice
	return base64.StdEncoding.EncodeToString(sum[:])
}

// Cancel removes the headers that Check has set in the response, for a request that is refused
// after all.
func (h *Handshake) Cancel() {
	for _, header := range []string{"Upgrade", "Connection", "Sec-WebSocket-Accept", protocolHeader} {
		h.c.Response.Header.Del(header)
	}
}

// Accept answers the request through client, which owns the connection until the handler returns.
// maxMessage bounds the messages of the client, in bytes. Accept returns a Conn even if the answer
// cannot be written, because the client has gone.
func (h *Handshake) Accept(client *clientconn.Conn, maxMessage int64) *Conn {
	next := client.Upgrade()
	_ = client.Respond(nil) // client reports why a write failed
	return &Conn{client: client, in: &inbound{next: next, parser: parser{limit: maxMessage}}}
}
