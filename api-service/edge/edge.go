// Package edge is api-service: HTTP on one side, whence.chat.v1.Chat on the other.
//
// The status of a request waits, for a short time, until the chat-service has accepted the request;
// then the headers are sent. After that a stream ends with the last event of its API, such as
// [DONE], if and only if it completed. Otherwise it ends with one event that has the error. If even
// that event cannot be written, the body is truncated. When the client leaves, the engine stops.
package edge

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/cloudwego/hertz/pkg/app"
	"github.com/cloudwego/hertz/pkg/common/config"
	"github.com/cloudwego/hertz/pkg/common/hlog"
	"github.com/cloudwego/hertz/pkg/route"

	"github.com/whence-dev/whence/api-service/access"
	"github.com/whence-dev/whence/api-service/anthropic"
	"github.com/whence-dev/whence/api-service/connection"
	"github.com/whence-dev/whence/api-service/connlimit"
	"github.com/whence-dev/whence/api-service/delivery"
	"github.com/whence-dev/whence/api-service/edge/chats"
	"github.com/whence-dev/whence/api-service/edge/converse"
	"github.com/whence-dev/whence/api-service/edge/dialogue"
	"github.com/whence-dev/whence/api-service/edge/exchange"
	"github.com/whence-dev/whence/api-service/edge/heir"
	"github.com/whence-dev/whence/api-service/edge/meter"
	"github.com/whence-dev/whence/api-service/edge/operate"
	"github.com/whence-dev/whence/api-service/edge/pages"
	"github.com/whence-dev/whence/api-service/edge/readers"
	"github.com/whence-dev/whence/api-service/edge/reports"
	"github.com/whence-dev/whence/api-service/edge/storage"
	"github.com/whence-dev/whence/api-service/follow"
	"github.com/whence-dev/whence/api-service/gate"
	"github.com/whence-dev/whence/api-service/image"
	"github.com/whence-dev/whence/api-service/keys"
	"github.com/whence-dev/whence/api-service/ollama"
	"github.com/whence-dev/whence/api-service/openai"
	"github.com/whence-dev/whence/api-service/quota"
	"github.com/whence-dev/whence/api-service/redisclient"
	"github.com/whence-dev/whence/api-service/replay"
	"github.com/whence-dev/whence/api-service/responses"
	"github.com/whence-dev/whence/api-service/sglang"
	"github.com/whence-dev/whence/internal/coarse"
	"github.com/whence-dev/whence/internal/descriptors"
	"github.com/whence-dev/whence/pkg/discover"
	"github.com/whence-dev/whence/pkg/drain"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/metrics"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/kitexrpc"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// An Edge answers HTTP requests.
type Edge struct {
	config  Config
	log     *slog.Logger
	desk    *exchange.Desk
	hop     *rpc.Hop
	chats   *chats.Fleet
	chat    chats.Engine
	images  *image.Fetcher
	replay  replay.Log
	keyring *follow.Keyring
	guard   *access.Guard // of the public listener
	meter   *meter.Meter
	repeats bool // a request may be sent again after its stream has started, so it must be kept until the end

	runs        runs
	connections *connlimit.Limiter // of the public listener
	clock       coarse.Clock       // of the clients' connections and their requests
	deliveries  delivery.Book

	operator *operate.Operator
	storage  *storage.Service
	reports  *reports.Reports

	dialogues dialogue.Service

	made    chan struct{}  // closed when New has returned
	heir    *heir.Heir     // nil until New has succeeded
	behind  sync.WaitGroup // streams that outlive their requests or handlers; Serve waits for them
	readers *readers.Readers
}

// New returns an edge in front of the chat-services of c. The caller closes the edge.
func New(c Config, log *slog.Logger) (*Edge, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	ring, err := keys.Load(c.Keys, log)
	if err != nil {
		return nil, err
	}
	e, err := newEdge(c, ring, log)
	if err != nil {
		ring.Close()
	}
	return e, err
}

// newEdge returns an edge for the callers of ring, which the edge closes.
func newEdge(c Config, ring *keys.Ring, log *slog.Logger) (*Edge, error) {
	e := &Edge{made: make(chan struct{})}
	defer close(e.made)
	kept, err := e.newReplay(c, log)
	if err != nil {
		return nil, err
	}
	book, err := newBook(c, ring, log)
	if err != nil {
		return nil, errors.Join(err, kept.Close())
	}
	source, err := discover.Parse(c.Chat)
	if err != nil {
		return nil, errors.Join(err, kept.Close(), book.Close())
	}
	records := &ledger.Ledger{Metrics: c.Metrics.Hop(c.Name, metrics.Chat), Traces: c.Traces, Usage: c.Usage}
	connect, err := c.connect(len(source.Static()) != 1, records.Metrics, log)
	if err != nil {
		return nil, errors.Join(err, kept.Close(), book.Close())
	}
	fleet, err := chats.NewOver(connect, c.Name, source, log)
	if err != nil {
		return nil, errors.Join(err, kept.Close(), book.Close())
	}
	hop := &rpc.Hop{Name: c.Name, Live: stream.Set{Max: c.MaxStreams}, Timers: c.Timers, Log: log, Observer: records}
	keyring := follow.NewKeyring(c.TokenKey)
	e.config, e.log, e.chats, e.hop = c, log, fleet, hop
	e.chat, e.images = e.staged(fleet.Start), image.New(c.Images)
	e.desk = &exchange.Desk{Name: c.Name, MaxBody: c.MaxBody, Bodies: &exchange.Bodies{}, Strict: c.Strict, TrustForwarded: c.TrustForwarded, Proxies: c.Connections.Proxies, Log: log, Metrics: records.Metrics}
	e.replay, e.keyring = kept, keyring
	e.guard = &access.Guard{Keys: ring, Operator: c.OperatorKey, Tokens: keyring}
	if c.Admin.On() {
		e.guard.Role = access.ForCallers
	}
	e.meter = &meter.Meter{Book: book}
	e.repeats = fleet.Resumes() || c.Stage != nil
	e.readers = &readers.Readers{
		Name: c.Name, Log: log, Desk: e.desk, Keyring: keyring, Replay: kept, Ledger: records, Deliveries: &e.deliveries,
		Enter: e.enter, TokenTTL: c.TokenTTL, KeepAlive: c.KeepAlive, ClientTimeout: c.ClientTimeout, WriteTimeout: c.WriteTimeout,
		Live: stream.Set{Max: c.MaxStreams},
	}
	if c.TokenTTL == 0 {
		e.readers.TokenTTL = DefaultTokenTTL
	}
	e.operator = &operate.Operator{Desk: e.desk, Meter: e.meter, Hop: hop, Chats: fleet, Replay: kept}
	e.storage = &storage.Service{Desk: e.desk, Replay: kept, Readers: e.readers, Stop: e.operator.Stop}
	e.connections = connlimit.New(c.Connections, records.Metrics, log)
	e.reports = &reports.Reports{Desk: e.desk, Hop: hop, Deliveries: &e.deliveries, Log: log}
	e.heir = &heir.Heir{Hop: hop, Chats: fleet, Replay: kept, Log: log, Run: e.resume}
	return e, nil
}

// newBook returns the counts of the keys of ring. Without keys there is nothing to count.
func newBook(c Config, ring *keys.Ring, log *slog.Logger) (*quota.Book, error) {
	q := quota.Config{Redis: c.Redis, Closed: c.RefuseUncounted, Log: log}
	if ring == nil {
		q.Redis = ""
	}
	return quota.New(q)
}

// staged wraps an engine in the stage of the Config.
func (e *Edge) staged(engine chats.Engine) chats.Engine {
	if e.config.Stage == nil {
		return engine
	}
	return stream.Push(e.config.Stage(engine.Range))
}

// Close closes the connections to chat-services, and the replay log. All streams must have ended.
func (e *Edge) Close() error {
	e.chats.Close()
	e.guard.Keys.Close()
	ledger.At(e.hop).Settle()
	return errors.Join(e.replay.Close(), e.meter.Book.Close())
}

// Serve serves on ln until ctx is done. Then it takes no new streams, lets the live streams finish
// for the grace of its Config, ends the rest with DRAINING, and returns nil.
func (e *Edge) Serve(ctx context.Context, ln net.Listener) error {
	h := e.public(ln.Addr())
	var err error
	if h.TLS, err = e.config.TLS.Open(e.log); err != nil {
		return errors.Join(err, ln.Close())
	}
	var following sync.WaitGroup
	defer following.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	following.Go(func() { e.guard.Keys.Follow(ctx, e.config.Keys, e.log) })
	return h.Run(ctx, ln, func() time.Duration { return e.Drain(ctx) })
}

// Drain takes no new streams, lets the live streams finish for the grace of the Config, and ends
// the rest with DRAINING. It returns how long connections may take to close.
func (e *Edge) Drain(ctx context.Context) (goodbye time.Duration) {
	e.replay.Retire()
	var talking sync.WaitGroup
	talking.Go(func() { e.dialogues.Drain(ctx, e.config.Grace) })
	e.hop.Drain(ctx, e.config.Grace)
	talking.Wait()
	e.behind.Wait()
	return e.dismiss(drain.Goodbye(ctx, connection.StopWait))
}

// maxKeptBody is the size of a body's buffer that a connection keeps for its next request, in bytes.
const maxKeptBody = 1 << 10

// public returns the server of the public listener, which listens at addr.
func (e *Edge) public(addr net.Addr) *connection.Server {
	if e.config.TrustForwarded || len(e.config.Connections.Proxies) > 0 || e.config.TLS.On() {
		addr = nil // clients reach proxies, which use names of their own, or names of the certificate
	}
	h, pages := e.server(addr, e.guard, e.connections)
	e.routes(h.Engine, pages)
	return h
}

// server returns a server without routes, for the callers of guard. reached is the address by which
// clients reach its listener, or nil if proxies do. limiter bounds the connections.
func (e *Edge) server(reached net.Addr, guard *access.Guard, limiter *connlimit.Limiter) (*connection.Server, *gate.Gate) {
	guard.Loopback = gate.Loopback(reached)
	options := config.NewOptions(nil)
	options.MaxKeepBodySize = maxKeptBody
	options.HandleMethodNotAllowed = true
	options.RedirectTrailingSlash = false
	options.DisablePrintRoute = true
	h := &connection.Server{
		Engine: route.NewEngine(options), Name: "whence",
		Arrival: e.config.ReadTimeout, Idle: idleTimeout, Write: e.config.WriteTimeout, Unsent: e.config.MaxUnsent,
		Clock: &e.clock, Enter: limiter.Enter, Late: new(descriptors.Brief), Hop: e.config.Name, Log: e.log,
	}
	origins := e.config.Origins
	if guard.Role == access.ForOperators {
		// Without a key, on loopback, pages of these origins would have the rights of operators.
		origins = nil
	}
	pages := gate.New(reached, origins, e.config.Hosts)
	h.Engine.Use(e.desk.Recover, e.desk.Bound, e.spare, e.desk.Pass(pages, exposed), e.authenticate(guard))
	return h, pages
}

// spare is middleware that answers only probes on a connection that has one of the last file
// descriptors, and closes it.
func (e *Edge) spare(ctx context.Context, c *app.RequestContext) {
	if x := connection.Of(c); x == nil || !x.Late() {
		c.Next(ctx)
		return
	}
	c.SetConnectionClose()
	switch string(c.Path()) {
	case "/healthz", "/readyz", "/health", "/ping", "/metrics":
		c.Next(ctx)
		return
	}
	descriptors.Refuse()
	exchange.ID(c)
	c.Abort()
	e.desk.Refuse(c, &streamerr.Error{Reason: streamerr.Overloaded, Message: "this instance has no file descriptor left for a connection", RetryAfter: time.Second})
}

// dismiss gives readers half of the goodbye to read endings. Then it ends the remaining readers,
// such as readers of other instances' streams, which will reconnect to another instance. It returns
// the rest of the goodbye.
func (e *Edge) dismiss(goodbye time.Duration) (left time.Duration) {
	until := time.Now().Add(goodbye)
	ctx, cancel := context.WithTimeout(context.Background(), goodbye/2)
	defer cancel()
	e.readers.Drain(ctx)
	return time.Until(until)
}

// routes adds the routes of the public listener.
func (e *Edge) routes(h *route.Engine, g *gate.Gate) {
	e.readers.Gate = g
	for path, handler := range map[string]app.HandlerFunc{
		"/v1/chat/completions":       e.answer(openAI(openai.ParseChat)),
		"/v1/completions":            e.answer(openAI(openai.ParseCompletion)),
		"/v1/embeddings":             e.embeddings(openAIEmbeddings),
		"/v1/rerank":                 e.scores(openAIRerank), // Jina's and vLLM's
		"/v2/rerank":                 e.scores(openAIRerank), // Cohere's
		"/rerank":                    e.scores(openAIRerank),
		"/v1/score":                  e.scores(openAIScore), // vLLM's
		"/score":                     e.scores(openAIScore),
		"/generate":                  e.answer(sglang.Parse),
		"/api/chat":                  e.answer(ollama.ParseChat),
		"/api/generate":              e.answer(ollama.ParseGenerate),
		"/api/embed":                 e.embeddings(ollama.ParseEmbed),
		"/api/embeddings":            e.embeddings(ollama.ParseEmbeddings),
		"/v1/responses":              e.answer(responses.Parser(e.config.StoreResponses)),
		"/v1/responses/compact":      e.answer(responses.ParseCompact),
		"/v1/responses/input_tokens": e.countInput,
		"/v1/messages":               e.answer(anthropic.Parse),
		"/v1/streams":                e.makeStream,
	} {
		h.POST(path, handler)
		h.POST(path+"/", handler) // some clients append a slash
	}
	e.operator.OllamaRoutes(h)
	e.prepareDialogues(g)
	h.GET("/v1/responses", e.dialogues.Handle)
	h.GET("/v1/streams/:id/events", e.readers.Events)
	conversations := converse.Service{
		Desk: e.desk, Hop: e.hop, Engine: e.chats.Converse, Gate: g, Images: e.images, Log: e.log, Admit: e.countTalk, Identify: e.identifies,
		Bounds: e.bounds(), KeepAlive: e.config.KeepAlive, ReadTimeout: e.config.ReadTimeout, MaxMessage: min(e.config.MaxBody, maxSocketMessage),
		Lifetime: cmp.Or(e.config.SocketLifetime, DefaultSocketLifetime), Recheck: recheckKeys,
	}
	h.GET("/v1/converse", conversations.Handle)
	h.POST("/v1/streams/:id/token", e.readers.RenewToken)
	h.POST("/v1/streams/:id/seen", e.reports.Seen)
	e.operator.Routes(h)
	e.storage.Routes(h)
	if e.config.PoolMetrics && e.config.Metrics != nil {
		h.GET("/metrics", connection.Handler(e.config.Metrics.Pool()))
	}
	e.lastRoutes(h, e.guard)
}

// lastRoutes adds the console, if the listener of guard serves it, and the answers to requests without a route.
func (e *Edge) lastRoutes(h *route.Engine, guard *access.Guard) {
	var taken route.RoutesInfo
	missing := func(_ context.Context, c *app.RequestContext) {
		exchange.ID(c)
		e.desk.Refuse(c, streamerr.New(streamerr.NotFound, "there is no %s%s", c.Path(), nearby(taken, string(c.Path()))).WithCode(streamerr.CodeUnknownURL))
	}
	if e.hasConsole(guard) {
		pages.Routes(h)
	} else {
		h.GET("/", missing)
		h.HEAD("/", func(_ context.Context, c *app.RequestContext) { c.Status(http.StatusOK) }) // Ollama's clients look for a server so
	}
	h.NoRoute(missing)
	taken = h.Routes()
	h.NoMethod(func(_ context.Context, c *app.RequestContext) {
		exchange.ID(c)
		c.Header("Allow", strings.Join(connection.Methods(taken, string(c.Path())), ", "))
		e.desk.Refuse(c, exchange.WithStatus(http.StatusMethodNotAllowed, streamerr.New(streamerr.Invalid, "%s does not take %s", c.Path(), c.Method())))
	})
}

// nearby returns a hint at the base URL of a client that has asked for a path without a route: some
// clients add /v1 to their base URL, and others do not.
func nearby(taken route.RoutesInfo, path string) string {
	for _, meant := range []string{"/v1" + path, strings.TrimPrefix(path, "/v1")} {
		if meant != path && meant != "/" && len(connection.Methods(taken, meant)) > 0 {
			return ", but there is " + meant + ": look at the end of the client's base URL"
		}
	}
	return ""
}

// LogTo redirects the log lines of Hertz, its Kitex client and the Redis client, in the whole
// process, to w, one line at a time.
func LogTo(w io.Writer) {
	hlog.SetSilentMode(true) // no lines about broken or malformed connections: any client could fill the log
	hlog.SetLevel(hlog.LevelInfo)
	hlog.SetOutput(w)
	kitexrpc.LogTo(w)
	redisclient.LogTo(w)
}
