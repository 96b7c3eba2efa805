// Package fake is a vLLM or an SGLang without a GPU, for the test of bench/gpu: it takes their command
// lines and serves the parts of their HTTP APIs, metrics and KV events that a worker uses.
//
// Each token is a function of all tokens before it, so that a continued answer can be compared with an
// undisturbed one. Unless the server is batch-invariant, some tokens also depend on the length of the
// prompt, as on a GPU, where prefill and decode round differently. A server reads prompts in chunks, and
// finds the blocks of earlier prompts in its cache.
package fake

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	block      = 16 // tokens
	chunk      = 64 // tokens of a prompt that are read in one step
	step       = 10 * time.Millisecond
	version    = "0.0.0+fake"
	firstToken = 300
)

// Run plays the command line of a server, whose first word is the name of the program: vllm, or python3.
func Run(args []string) error {
	program := filepath.Base(args[0])
	switch {
	case program == "vllm" && slices.Equal(args[1:], []string{"--version"}), program == "python3" && args[1] == "-c":
		_, err := fmt.Println(version)
		return err
	case program == "vllm" && len(args) > 2 && args[1] == "serve":
		return serve(args[2], args[3:], os.Getenv("VLLM_BATCH_INVARIANT") == "1", false)
	case program == "python3" && len(args) > 3 && args[1] == "-m" && args[2] == "sglang.launch_server":
		return serve(value(args, "--model-path"), args[3:], slices.Contains(args, "--enable-deterministic-inference"), true)
	default:
		return fmt.Errorf("the fake has no command %q", args)
	}
}

// value returns the argument after a flag, or "".
func value(args []string, flag string) string {
	if i := slices.Index(args, flag); i >= 0 && i+1 < len(args) {
		return args[i+1]
	}
	return ""
}

// A server generates tokens.
type server struct {
	model     string
	context   int
	tokens    uint32 // number of tokens that it draws from
	invariant bool
	places    chan struct{} // one for each request that may run
	events    *publisher    // nil for none

	mu      sync.Mutex // guards the following fields
	held    map[uint64]bool
	running map[string]context.CancelFunc // by id
}

func serve(model string, args []string, invariant, isSGLang bool) error {
	raw, err := os.ReadFile(filepath.Join(model, "config.json"))
	if err != nil {
		return err
	}
	var config struct {
		Vocab   uint32 `json:"vocab_size"`
		Context int    `json:"max_position_embeddings"`
	}
	if err := json.Unmarshal(raw, &config); err != nil {
		return err
	}
	if config.Vocab < 2*firstToken {
		return fmt.Errorf("a vocabulary of %d tokens is too small", config.Vocab)
	}
	places := 256
	for _, flag := range []string{"--max-num-seqs", "--max-running-requests"} {
		if n, err := strconv.Atoi(value(args, flag)); err == nil {
			places = n
		}
	}
	s := &server{
		model: model, context: config.Context, tokens: min(500, config.Vocab-firstToken), invariant: invariant,
		places: make(chan struct{}, places), held: map[uint64]bool{}, running: map[string]context.CancelFunc{},
	}
	if text := value(args, "--kv-events-config"); text != "" {
		if s.events, err = publish(text); err != nil {
			return err
		}
	}
	mux := http.NewServeMux()
	if isSGLang {
		s.sglang(mux)
	} else {
		s.vllm(mux)
	}
	ln, err := new(net.ListenConfig).Listen(context.Background(), "tcp", net.JoinHostPort("127.0.0.1", value(args, "--port")))
	if err != nil {
		return err
	}
	return (&http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}).Serve(ln)
}

// A request is a prompt to continue.
type request struct {
	id     string
	prompt []uint32
	limit  int
}

// errAborted ends an answer whose client has left.
var errAborted = errors.New("aborted")

// answer generates the tokens of a request, and passes each on.
func (s *server) answer(ctx context.Context, r request, next func(id uint32, cached int)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	select {
	case s.places <- struct{}{}:
	case <-ctx.Done():
		return errAborted
	}
	defer func() { <-s.places }()
	s.mu.Lock()
	s.running[r.id] = cancel
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.running, r.id)
	}()
	tick := time.NewTicker(step)
	defer tick.Stop()
	wait := func() bool {
		select {
		case <-tick.C:
			return true
		case <-ctx.Done():
			return false
		}
	}
	cached := s.find(r.prompt)
	for read := cached; read < len(r.prompt); read += chunk {
		if !wait() {
			return errAborted
		}
	}
	s.store(r.prompt)
	h := fnv.New64a()
	for _, id := range r.prompt {
		_, _ = h.Write(binary.LittleEndian.AppendUint32(nil, id)) // never fails
	}
	for range r.limit {
		sum := h.Sum64() >> 20
		if !s.invariant && sum%13 == 0 {
			sum += uint64(len(r.prompt))
		}
		id := firstToken + uint32(sum%uint64(s.tokens)) //nolint:gosec // below the number of tokens
		_, _ = h.Write(binary.LittleEndian.AppendUint32(nil, id))
		next(id, cached)
		if !wait() {
			return errAborted
		}
	}
	return nil
}

// names returns the hashes of the whole blocks of a prompt, and their parents.
func names(prompt []uint32) (all []uint64) {
	h := fnv.New64a()
	for i, id := range prompt {
		_, _ = h.Write(binary.LittleEndian.AppendUint32(nil, id))
		if i%block == block-1 {
			all = append(all, h.Sum64())
		}
	}
	return all
}

// find returns the number of tokens of a prompt that the cache has. The last token is always read.
func (s *server) find(prompt []uint32) (tokens int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range names(prompt[:len(prompt)-1]) {
		if !s.held[name] {
			break
		}
		tokens += block
	}
	return tokens
}

func (s *server) store(prompt []uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var parent any // nil for the first block
	for i, name := range names(prompt) {
		if !s.held[name] {
			s.held[name] = true
			s.events.stored(name, parent, prompt[i*block:(i+1)*block])
		}
		parent = name
	}
}

// abort ends the requests whose ids begin with a text.
func (s *server) abort(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for known, cancel := range s.running {
		if strings.HasPrefix(known, id) {
			cancel()
		}
	}
}

func (s *server) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.running)
}
