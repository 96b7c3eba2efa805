// Package operate serves the routes for people and scripts that ask about streams, models and
// workers: all routes of the edge that run no stream.
package operate

import (
	"net/http"

	"github.com/cloudwego/hertz/pkg/route"

	"github.com/whence-dev/whence/api-service/edge/chats"
	"github.com/whence-dev/whence/api-service/edge/exchange"
	"github.com/whence-dev/whence/api-service/edge/meter"
	"github.com/whence-dev/whence/api-service/replay"
	"github.com/whence-dev/whence/pkg/rpc"
)

// An Operator answers from the edge and from the chat-services behind the edge.
type Operator struct {
	*exchange.Desk
	Meter *meter.Meter
	Hop   *rpc.Hop
	Chats *chats.Fleet
	// Replay has the streams of all instances.
	Replay replay.Log
}

// Routes adds the routes to h.
func (o *Operator) Routes(h *route.Engine) {
	h.GET("/v1/streams", o.list)
	h.GET("/v1/streams/:id", o.why)
	h.DELETE("/v1/streams/:id", o.stopStream)
	h.POST("/abort_request", o.abortRequest)
	h.GET("/v1/workers", o.workers)
	h.POST("/tokenize", o.tokenize)
	h.POST("/detokenize", o.detokenize)
	h.POST("/v1/messages/count_tokens", o.countTokens)
	for _, method := range []string{http.MethodGet, http.MethodHead} { // probes may use either
		h.Handle(method, "/v1/models", o.models)
		h.Handle(method, "/v1/models/*id", o.model)
		h.Handle(method, "/healthz", o.healthz)
		h.Handle(method, "/readyz", o.readyz)
		h.Handle(method, "/health", o.readyz) // of vLLM and SGLang, as is the next
		h.Handle(method, "/ping", o.readyz)
		h.Handle(method, "/version", o.version)
		h.Handle(method, "/model_info", o.modelInfo) // of SGLang, as is the next
		h.Handle(method, "/get_model_info", o.modelInfo)
	}
}
