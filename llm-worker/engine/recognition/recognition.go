// Package recognition asks an address which model server answers there: its make and version, its
// model, its limits, and the engine of this project that uses it best.
//
// Ask only reads: it generates nothing and loads no model. An empty object as a request, which every server
// refuses, shows whether the server has a route. Each request is bounded in time, each answer
// in bytes, and nothing that a server tells is trusted to be short or complete. Errors say what is wrong
// for people who have typed an address, and name no address, because clients may read them.
package recognition

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"
)

// A Make is the product that a server is, as people write it.
type Make string

// The makes that Ask recognises.
const (
	VLLM     Make = "vLLM"
	SGLang   Make = "SGLang"
	LlamaCPP Make = "llama.cpp"
	Ollama   Make = "Ollama"
	TGI      Make = "TGI"
	LMStudio Make = "LM Studio"
	TEI      Make = "text-embeddings-inference"
	Whence   Make = "Whence"
	Unknown  Make = "a server with OpenAI's API"
)

// A Server is what an address has told about its server. What it does not tell is zero.
type Server struct {
	Make    Make
	Version string
	GRPC    bool   // it speaks the gRPC service of vLLM or SGLang, and not HTTP
	Address string // as the engine takes it: a URL, or host:port with GRPC
	Engine  string // the best engine for the server, by the name of --engine

	Model  string   // the name of the model in requests to the server
	Root   string   // of the model, as the server was started with it: a path there, or an id of a hub
	Models []string // the names of all models that it lists, bounded
	Limits Limits
	// Pools reports that the server was started to embed or to rate documents. Most such servers do not
	// generate.
	Pools bool
}

// Limits are what a server tells about itself and its model.
type Limits struct {
	Context   int      // tokens of prompt and answer together
	Running   int      // requests that it runs at a time: max_num_seqs, slots
	Ranks     int      // data-parallel ranks; 0 if there is one, or unknown
	KVBlock   int      // tokens of a block of the KV cache
	KVTokens  int      // tokens of the KV cache of all ranks
	Adapters  []string // LoRA adapters
	Reasoning string   // the parser of the model's reasoning
	Metrics   bool     // it serves metrics of its load
}

// A form is a make together with the protocol that its address speaks.
type form struct {
	make Make
	grpc bool
}

// engines is the best engine for each server: its own API if that honours more than OpenAI's.
var engines = map[form]string{
	{VLLM, false}:     "openai", // token ids both ways, adapters, images
	{VLLM, true}:      "vllm",
	{SGLang, false}:   "sglang", // OpenAI's API of SGLang has no log-probabilities of token ids
	{SGLang, true}:    "sglang",
	{LlamaCPP, false}: "llamacpp", // OpenAI's API of llama.cpp has no token ids in answers
	{Ollama, false}:   "ollama",   // OpenAI's API of Ollama adds a template of its own to prompts
	{TGI, false}:      "openai",
	{LMStudio, false}: "openai",
	{TEI, false}:      "openai",
	{Whence, false}:   "openai",
	{Unknown, false}:  "openai",
}

// Options say how to ask.
type Options struct {
	Key   string // sent as a bearer token unless ""
	Model string // the server's name for the model; "" means the first model of its list
}

const (
	// askTimeout bounds one request. A server under load may take a while to list its models.
	askTimeout = 5 * time.Second
	// maxBody bounds an answer, in bytes, and maxMetrics a page of metrics.
	maxBody    = 2 << 20
	maxMetrics = 4 << 20
	// maxModels bounds the models and adapters of a list, and maxText each text that a server tells.
	maxModels = 1024
	maxText   = 512
)

// ErrAddress is the error for an address that has no valid form.
var ErrAddress = errors.New("it must be a URL such as http://127.0.0.1:8000, or a host and port such as 127.0.0.1:8000")

// Validate reports whether Ask takes an address: a URL, or host:port without a scheme.
func Validate(address string) error {
	_, err := candidates(address)
	return err
}

// candidates returns the URLs under which the server of an address may answer.
func candidates(address string) ([]string, error) {
	if strings.Contains(address, "://") {
		u, err := url.Parse(address)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return nil, ErrAddress
		}
		if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
			return nil, errors.New("it must be a host, a port and optionally a path; a key belongs in --upstream-key")
		}
		return []string{strings.TrimSuffix(address, "/")}, nil
	}
	authority, path, _ := strings.Cut(address, "/")
	if host, port, err := net.SplitHostPort(authority); err != nil || host == "" || port == "" || strings.ContainsAny(authority, "@?# ") {
		return nil, ErrAddress
	}
	rest := strings.TrimSuffix(authority+"/"+path, "/")
	return []string{"http://" + rest, "https://" + rest}, nil
}

// Ask asks the server at an address, in one of the forms of Validate.
func Ask(ctx context.Context, address string, opts Options) (*Server, error) {
	urls, err := candidates(address)
	if err != nil {
		return nil, err
	}
	c := newClient(opts.Key)
	defer c.close()
	s, err := c.recognize(ctx, urls[0], opts.Model)
	var strange *protocolError
	if !errors.As(err, &strange) {
		return done(s, err)
	}
	// Something answers, but not HTTP/1 as the address says.
	if s, grpcErr := overGRPC(ctx, hostPort(urls[0])); grpcErr == nil || !errors.Is(grpcErr, errNoGRPC) {
		return done(s, grpcErr)
	}
	if !speaksTLS(ctx, urls[0]) {
		return nil, err
	}
	if len(urls) == 1 {
		return nil, errors.New("the server that generates speaks HTTPS: its address begins with https://, not http://")
	}
	return done(c.recognize(ctx, urls[1], opts.Model))
}

// done completes the description of a server with the engine for it.
func done(s *Server, err error) (*Server, error) {
	if err != nil {
		return nil, err
	}
	s.Engine = engines[form{s.Make, s.GRPC}]
	if s.Pools && !s.GRPC {
		s.Engine = "openai" // the only engine over HTTP that embeds
	}
	if s.Model == "" {
		return nil, fmt.Errorf("the server that generates is %s, and has no model yet%s", s, s.Make.advice())
	}
	return s, nil
}

// advice says how a server without a model gets one.
func (m Make) advice() string {
	switch m {
	case Ollama:
		return ": ollama pull adds one"
	case LMStudio:
		return ": load one there"
	default:
		return ""
	}
}

// String returns the make and the version, such as "vLLM 0.32.0".
func (s *Server) String() string {
	name := strings.TrimSpace(string(s.Make) + " " + s.Version)
	if s.GRPC {
		name += " over gRPC"
	}
	return name
}

// Facts describes the limits for people, in a few words each, in a fixed order.
func (l *Limits) Facts() []string {
	var all []string
	add := func(n int, format string) {
		if n > 0 {
			all = append(all, fmt.Sprintf(format, n))
		}
	}
	add(l.Context, "a context of %d tokens")
	add(l.Running, "%d requests at a time")
	add(l.Ranks, "%d data-parallel ranks")
	add(l.KVTokens, "a KV cache of %d tokens")
	add(l.KVBlock, "KV blocks of %d tokens")
	add(len(l.Adapters), "%d adapters")
	if l.Reasoning != "" {
		all = append(all, "the reasoning parser "+l.Reasoning)
	}
	if !l.Metrics {
		all = append(all, "no metrics of its load")
	}
	return all
}

// String returns the facts as one text.
func (l *Limits) String() string { return strings.Join(l.Facts(), ", ") }

// Local reports whether the server of an address is on this machine's loopback, so that paths which it
// names are paths of this machine.
func Local(address string) bool {
	host, _, err := net.SplitHostPort(hostPort(address))
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// hostPort returns the host and port of a URL or of host:port.
func hostPort(address string) string {
	if !strings.Contains(address, "://") {
		authority, _, _ := strings.Cut(address, "/")
		return authority
	}
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	port := map[string]string{"http": "80", "https": "443"}[u.Scheme]
	return net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), port))
}
