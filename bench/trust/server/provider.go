// Package server has servers that Whence's services call, with faults.
package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"
)

// A Provider is a server with OpenAI's API that lists a model, and refuses every request for it.
type Provider struct {
	URL      string
	Requests atomic.Int64 // that were refused

	model  string
	status int
	server http.Server
	served chan struct{} // closed when the server has ended
}

// NewProvider starts a provider that refuses every request with a status.
func NewProvider(model string, status int) (*Provider, error) {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Provider{URL: "http://" + l.Addr().String(), model: model, status: status, served: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/models", p.models)
	mux.HandleFunc("POST /v1/completions", p.complete)
	p.server.Handler, p.server.ReadHeaderTimeout = mux, time.Second
	go func() {
		_ = p.server.Serve(l) // until Close
		close(p.served)
	}()
	return p, nil
}

// Close ends the provider.
func (p *Provider) Close() error {
	err := p.server.Close()
	<-p.served
	return err
}

func (p *Provider) models(w http.ResponseWriter, _ *http.Request) {
	_, _ = fmt.Fprintf(w, `{"object":"list","data":[{"id":%q,"object":"model","owned_by":"vllm"}]}`, p.model)
}

// complete refuses a request, except for the worker's trial of a single token: a provider may be at its
// limit only later.
func (p *Provider) complete(w http.ResponseWriter, r *http.Request) {
	var request struct {
		MaxTokens int `json:"max_tokens"`
	}
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if request.MaxTokens == 1 {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = fmt.Fprint(w, `data: {"choices":[{"index":0,"text":"","token_ids":[1],"finish_reason":null}]}

data: {"choices":[{"index":0,"text":"","finish_reason":"length"}]}

data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}

data: [DONE]

`)
		return
	}
	p.Requests.Add(1)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(p.status)
	_, _ = fmt.Fprintf(w, `{"error":{"message":"refused","type":"provider_error","code":%q}}`, strconv.Itoa(p.status))
}
