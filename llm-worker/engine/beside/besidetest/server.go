// Package besidetest provides model servers to test the engines that use a server beside the
// worker.
//
// A Server is built from the published field numbers of a service (see Dialect), and reads and
// writes bytes: it shares no generated code with the engine under test. Its answer is a function of
// the prompt, so tests know the expected tokens; Scripts make it misbehave. Run tests an engine
// against everything that such a server can do.
package besidetest

import (
	"context"
	"hash/fnv"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// A Request is a request to the server, in terms that all services share.
type Request struct {
	ID       string
	Prompt   []uint32
	Adapter  string // "" for the model itself
	Images   []string
	Sampling map[string]any // keyed by the field names of whence.llm.v1.Sampling, and constraints by the service's; an absent field was not set
	Logprobs int            // top tokens that the service is asked for at each position; -1 if no log-probabilities
	Scored   bool           // the service is asked for as many of the prompt's tokens
	Rank     int            // the data-parallel rank in a request over gRPC; -1 if none
	Stream   bool
	Metadata metadata.MD
}

// Max returns the requested number of tokens.
func (r *Request) Max() int {
	limit, _ := r.Sampling["max_tokens"].(uint64)
	return int(limit) //nolint:gosec // a test's
}

// A Dialect holds a service's names and field numbers.
type Dialect struct {
	Service string
	Read    func(Message) Request
	// sent: number of tokens of the answer so far, including ids.
	Chunk    func(r Request, ids []uint32, sent int) Message
	Complete func(r Request, finish string, last []uint32, sent int) Message
	Aborts   func(Message) (ids []string)
	Aborted  Message // the answer to an abort
	Healthy  func(healthy bool) Message
	Info     func(context, vocab int, eos uint32, generates bool) Message
	// AbortedFinish is the finish reason of an aborted answer, unless AbortedStatus is set.
	AbortedFinish string
	AbortedStatus error
	// More answers the methods that other services lack, by their names.
	More map[string]func(*Server) Message
	// Refuses has the methods of More that answer with an error instead.
	Refuses map[string]error
	// Embed reads a request for a vector, and returns its id and the answer; nil for a service without vectors.
	Embed func(Message) (id string, answer Message)
	// Loads reports whether the service reports its load.
	Loads bool
	// HangsUp reports whether requests have no ids: closing the connection is the only way to stop one.
	HangsUp bool
	// HTTP serves the dialect over HTTP; nil for a gRPC service.
	HTTP func(*Server) http.Handler
}

// Properties of a Server's model.
const (
	Context = 2048
	Vocab   = 5000
	EOS     = 2
)

// Token returns the token number n (from 0) of the answer to a prompt. It is never EOS.
func Token(prompt []uint32, n int) uint32 {
	h := fnv.New32a()
	for _, id := range append(prompt[:len(prompt):len(prompt)], uint32(n)) { //nolint:gosec // a test's
		_, _ = h.Write([]byte{byte(id), byte(id >> 8)})
	}
	return 100 + h.Sum32()%(Vocab-100)
}

// Tokens returns the first n tokens of an answer.
func Tokens(prompt []uint32, n int) []uint32 {
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = Token(prompt, i)
	}
	return ids
}

// A Server is a model server for tests.
type Server struct {
	Addr    string
	Live    atomic.Int32 // running answers
	Ill     atomic.Bool  // health checks fail
	NoModel atomic.Bool  // the model only embeds
	Deaf    atomic.Bool  // the server ignores aborts
	Held    atomic.Bool  // requests for vectors, other than trials, wait for their abort
	Checks  atomic.Int32 // number of health checks
	Looks   atomic.Int32 // number of requests for the model's properties
	Busy    atomic.Bool  // other clients use the server, too
	Vocab   atomic.Int32 // the size of the model's vocabulary
	Void    atomic.Bool  // the server ignores guides, as one with a reasoning parser does
	// Unknown are the fields, and constraints, that the server refuses in trials.
	Unknown atomic.Pointer[[]string]
	// LoadsAsked is the number of requests for the load.
	LoadsAsked atomic.Int32
	Hang       chan struct{} // closed at the end of the test
	Posted     Callers       // of the service over HTTP: requests that generate

	dialect Dialect
	script  Script
	stop    func()
	read    chan struct{} // closed when a test of Misdeeds has read a token

	mu       sync.Mutex // guards the following fields
	asked    []Request
	answers  map[string]context.CancelFunc // keyed by id
	aborted  []string
	embedded []string
	conns    []net.Conn
}

// raw passes messages on unchanged.
type raw struct{}

func (raw) Marshal(v any) ([]byte, error) { return *v.(*Message), nil } //nolint:forcetypeassert // there is nothing else

func (raw) Unmarshal(b []byte, v any) error {
	*v.(*Message) = append(Message(nil), b...) //nolint:forcetypeassert // there is nothing else
	return nil
}

func (raw) Name() string { return "proto" }

// Start runs a server until the end of the test. An empty addr means any free port.
func Start(t testing.TB, dialect Dialect, script Script, addr string) *Server {
	t.Helper()
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{Addr: ln.Addr().String(), Hang: make(chan struct{}), read: make(chan struct{}), dialect: dialect, script: script, answers: make(map[string]context.CancelFunc)}
	s.Vocab.Store(Vocab)
	var wg sync.WaitGroup
	if dialect.HTTP != nil {
		web := &http.Server{Handler: s.Posted.Of(dialect.HTTP(s)), ErrorLog: log.New(io.Discard, "", 0), ReadHeaderTimeout: time.Minute}
		s.stop = func() { _ = web.Close() }
		wg.Go(func() { _ = web.Serve(trackingListener{ln, s}) })
	} else {
		service := grpc.NewServer(grpc.ForceServerCodec(raw{}), grpc.UnknownServiceHandler(func(_ any, st grpc.ServerStream) error { return s.serve(st) }))
		s.stop = service.Stop
		wg.Go(func() { _ = service.Serve(trackingListener{ln, s}) })
	}
	t.Cleanup(func() {
		close(s.Hang)
		s.stop()
		wg.Wait()
	})
	return s
}

// A trackingListener records its connections, so that Cut can close them.
type trackingListener struct {
	net.Listener
	server *Server
}

func (l trackingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil {
		l.server.mu.Lock()
		l.server.conns = append(l.server.conns, conn)
		l.server.mu.Unlock()
	}
	return conn, err
}

// Cut breaks all connections.
func (s *Server) Cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, conn := range s.conns {
		_ = conn.Close()
	}
	s.conns = nil
}

// CutOnceRead breaks all connections once a test of Misdeeds has read a token: before that, a token
// may not have been written yet.
func (s *Server) CutOnceRead() {
	select {
	case <-s.read:
	case <-s.Hang:
	}
	s.Cut()
}

// Stop ends the server before the test is over.
func (s *Server) Stop() { s.stop() }

// Asked returns the generation requests so far.
func (s *Server) Asked() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Request(nil), s.asked...)
}

// AbortedIDs returns the ids that clients have aborted so far.
func (s *Server) AbortedIDs() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.aborted...)
}

func (s *Server) serve(st grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(st)
	var in Message
	if err := st.RecvMsg(&in); err != nil {
		return err
	}
	var out Message
	switch method {
	case "/" + s.dialect.Service + "/Generate":
		r := s.dialect.Read(in)
		r.Metadata, _ = metadata.FromIncomingContext(st.Context())
		return s.Play(r, func(m Message) { _ = st.SendMsg(&m) }, st.Context().Done())
	case "/" + s.dialect.Service + "/HealthCheck":
		s.Checks.Add(1)
		out = s.dialect.Healthy(!s.Ill.Load())
	case "/" + s.dialect.Service + "/GetModelInfo":
		s.Looks.Add(1)
		out = s.dialect.Info(Context, int(s.Vocab.Load()), EOS, !s.NoModel.Load())
	case "/" + s.dialect.Service + "/Abort":
		if s.Deaf.Load() {
			<-st.Context().Done()
			return st.Context().Err()
		}
		s.Abort(s.dialect.Aborts(in))
		out = s.dialect.Aborted
	case "/" + s.dialect.Service + "/Embed":
		return s.embed(st, in)
	default:
		name := strings.TrimPrefix(method, "/"+s.dialect.Service+"/")
		if err := s.dialect.Refuses[name]; err != nil {
			return err
		}
		more := s.dialect.More[name]
		if more == nil {
			return status.Errorf(codes.Unimplemented, "there is no %s", method)
		}
		out = more(s)
	}
	return st.SendMsg(&out)
}

// embed answers a request for a vector, if the server's model only embeds. While Held is set, requests wait
// until they are canceled.
func (s *Server) embed(st grpc.ServerStream, in Message) error {
	if s.dialect.Embed == nil || !s.NoModel.Load() {
		return status.Error(codes.Unimplemented, "the model does not support embeddings")
	}
	id, answer := s.dialect.Embed(in)
	s.mu.Lock()
	s.embedded = append(s.embedded, id)
	s.mu.Unlock()
	if s.Held.Load() && !IsTrial(id) {
		<-st.Context().Done()
		return st.Context().Err()
	}
	return st.SendMsg(&answer)
}

// Embedded returns the ids of the requests for vectors so far.
func (s *Server) Embedded() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.embedded...)
}

// Abort ends the answers with these ids.
func (s *Server) Abort(ids []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		s.aborted = append(s.aborted, id)
		if cancel := s.answers[id]; cancel != nil {
			cancel()
		}
	}
}

// Play answers a request with the script, until the caller is gone.
func (s *Server) Play(r Request, send func(Message), gone <-chan struct{}) error {
	if IsTrial(r.ID) {
		return s.try(r, send)
	}
	s.Live.Add(1)
	defer s.Live.Add(-1)
	aborted, cancel := context.WithCancel(context.Background())
	defer cancel()
	s.mu.Lock()
	s.asked = append(s.asked, r)
	s.answers[r.ID] = cancel
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.answers, r.ID)
	}()
	return s.script(&Answer{Request: r, Server: s, Send: send, gone: gone, aborted: aborted.Done()})
}

// An Answer is the interface of a Script to the caller.
type Answer struct {
	Request
	Server *Server
	Send   func(Message) // sends a message unchanged

	gone    <-chan struct{} // closed when the caller is gone
	aborted <-chan struct{}
	sent    int
	last    []uint32
}

// Chunk sends tokens.
func (a *Answer) Chunk(ids ...uint32) {
	a.sent += len(ids)
	a.last = ids
	a.Send(a.Server.dialect.Chunk(a.Request, ids, a.sent))
}

// Complete sends the ending. It repeats the tokens of the last chunk, as these servers do.
func (a *Answer) Complete(finish string) {
	a.Send(a.Server.dialect.Complete(a.Request, finish, a.last, a.sent))
}

// Count sends the next n tokens of the answer, one per millisecond. It reports false if the caller
// has stopped the answer.
func (a *Answer) Count(n int) bool {
	for range n {
		if !a.Pace(Token(a.Prompt, a.sent)) {
			return false
		}
	}
	return true
}

// Pace sends a token and then waits a millisecond. It reports false if the caller has stopped the
// answer.
func (a *Answer) Pace(id uint32) bool {
	a.Chunk(id)
	select {
	case <-time.After(time.Millisecond):
		return true
	case <-a.aborted:
		return false
	case <-a.gone:
		return false
	}
}

// Wait waits until the caller stops the answer.
func (a *Answer) Wait() {
	select {
	case <-a.aborted:
	case <-a.gone:
	case <-a.Server.Hang:
	}
}

// Aborted ends the answer as an aborted one.
func (a *Answer) Aborted() error {
	d := a.Server.dialect
	if d.AbortedStatus == nil {
		a.Complete(d.AbortedFinish)
	}
	return d.AbortedStatus
}
