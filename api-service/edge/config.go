package edge

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/whence-dev/whence/api-service/connection"
	"github.com/whence-dev/whence/api-service/connlimit"
	"github.com/whence-dev/whence/api-service/edge/admin"
	"github.com/whence-dev/whence/api-service/edge/chats"
	"github.com/whence-dev/whence/api-service/gate"
	"github.com/whence-dev/whence/api-service/image"
	"github.com/whence-dev/whence/api-service/leave"
	"github.com/whence-dev/whence/api-service/redisclient"
	"github.com/whence-dev/whence/api-service/replay"
	"github.com/whence-dev/whence/api-service/replay/redislog"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/internal/descriptors"
	"github.com/whence-dev/whence/internal/flags"
	"github.com/whence-dev/whence/internal/process"
	"github.com/whence-dev/whence/pkg/discover"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/metrics"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/mtls"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamtrace"
	"github.com/whence-dev/whence/pkg/usage"
)

// A Config is the configuration of api-service.
type Config struct {
	Name        string        // in paths and logs
	Chat        string        // addresses of chat-services, in the syntax of discover.Parse
	MaxBody     int64         // maximum bytes of a request's body
	Images      image.Limits  // of the images of a request; the zero value refuses all images
	MaxStreams  int           // maximum live streams; further ones are OVERLOADED
	ReadTimeout time.Duration // for a request's header and body
	// SocketLifetime bounds a WebSocket of /v1/responses or /v1/converse; 0 means DefaultSocketLifetime.
	SocketLifetime time.Duration
	WriteTimeout   time.Duration // for one write to a client; after it the reader is too slow
	// ClientTimeout is how long a client may acknowledge none of the data sent to it before it
	// counts as gone. 0 means no bound.
	ClientTimeout time.Duration
	// MaxUnsent is the maximum number of bytes that wait in the kernel for a slow client before
	// writes to it block; 0 means no bound.
	MaxUnsent    int
	HeadersAfter time.Duration // how long the status of a stream waits for the request to be accepted
	KeepAlive    time.Duration // time without an event after which a reader gets a comment; 0 means never
	Leave        leave.Policy  // for streams that the requesting client reads
	LeaveEvents  leave.Policy  // for streams of POST /v1/streams
	Replay       replay.Limits // of the replay log, for readers that join late or reconnect
	// StoreResponses stores the responses of requests that leave out store, once they have ended, if
	// there is room for them.
	StoreResponses bool
	// Redis is the URL of the Redis server that shares the replay log between instances; "" keeps
	// the log in memory.
	Redis         string
	RedisLease    time.Duration // how long an instance may not reach Redis before others take its streams over; 0 means redislog.DefaultLease
	TakeoverBytes int           // maximum bytes of a request that Redis keeps for a takeover; 0 keeps no requests
	Keys          string        // YAML file of API keys and tenants; "" accepts every caller
	// RefuseUncounted refuses the requests of keys with limits while Redis does not answer. Without
	// it, each instance applies the limits to its own counts.
	RefuseUncounted bool
	TokenKey        string        // signs read tokens; equal on all instances; "" means a random key
	TokenTTL        time.Duration // of read tokens; 0 means DefaultTokenTTL
	OperatorKey     string        // lists, shows and stops the streams of all owners; "" means none
	Admin           admin.Config  // the listener of operators
	Origins         gate.List     // origins whose pages may read answers, besides this service's own
	Hosts           gate.List     // host names of this service, besides those of loopback
	Strict          bool          // fields of bodies that cannot be honoured are refused instead of left out
	Timers          rpc.Timers
	TLS             connection.Certificate
	// TrustForwarded takes the last address of X-Forwarded-For as the client's address. It requires
	// that all connections come from a trusted proxy.
	TrustForwarded bool
	Connections    connlimit.Config // bounds those of the public listener, and names proxies
	// PoolMetrics serves the load of the process to endpoint pickers on the public listener (see
	// metrics.Pool). It needs Metrics.
	PoolMetrics bool
	Metrics     *metrics.Metrics    // nil for none
	Traces      *streamtrace.Tracer // nil for none
	Usage       *usage.Log          // nil for none
	Grace       time.Duration       // for streams that run when the process drains
	MTLS        mtls.Config         // of the connections to chat-services
	Link        bool                // streams go over the links of chat-services that have them
	// Connect connects to a chat-service, for programs with their own transport; nil means Kitex
	// clients.
	Connect chats.Connect
	Stage   Stage // a middleware around the chat-service, for programs that embed this service; nil means none
	// StagePasses promises that the stage passes items on unchanged. Without it no instance can
	// take the streams over.
	StagePasses bool
}

// A Stage is a middleware for every stream of the service. See stream.Stage for what a stage must
// not do.
type Stage = stream.Stage[*chatv1.ChatRequest, *chatv1.GenerateResponse, *chatv1.ChatRequest, *chatv1.GenerateResponse]

// Defaults of Config.
const (
	DefaultName          = "api-service"
	DefaultListen        = "127.0.0.1:8080"
	DefaultChat          = "127.0.0.1:8081"
	DefaultMaxBody       = 32 << 20 // as Anthropic's API
	DefaultMaxStreams    = 10000
	DefaultReadTimeout   = 30 * time.Second
	DefaultWriteTimeout  = 30 * time.Second
	DefaultClientTimeout = 15 * time.Second
	DefaultMaxUnsent     = 128 << 10
	DefaultHeadersAfter  = 2 * time.Second
	DefaultGrace         = 30 * time.Second
	DefaultKeepAlive     = 15 * time.Second
	DefaultTokenTTL      = time.Hour
	DefaultTakeoverBytes = 1 << 20
	// DefaultSocketLifetime is the same as OpenAI's.
	DefaultSocketLifetime = time.Hour

	idleTimeout = 2 * time.Minute // of a connection between requests
)

// DefaultLeaveEvents gives a reader time to reconnect.
var DefaultLeaveEvents = leave.Policy{Kind: leave.Linger, For: 30 * time.Second}

// DefaultTimers are longer than those of the hops below.
var DefaultTimers = rpc.Timers{FirstToken: 3 * time.Minute, Stall: 50 * time.Second}

// maxMemo returns the maximum bytes of a memo: half of the bytes of a stream. The other half is for
// the answer.
func (c *Config) maxMemo() int { return c.Replay.WithDefaults().StreamBytes / 2 }

// Flags adds the flags of c to fs.
func (c *Config) Flags(fs *flag.FlagSet) {
	process.NameFlag(fs, &c.Name, DefaultName)
	fs.StringVar(&c.Chat, "chat", DefaultChat, "addresses of chat-services: "+discover.Forms)
	fs.IntVar(&c.MaxStreams, "max-streams", DefaultMaxStreams, "maximum live streams; further streams are refused")
	fs.DurationVar(&c.Grace, "drain", DefaultGrace, "how long live streams may finish after the first signal; a second signal ends them at once")
	c.Timers = DefaultTimers
	process.TimerFlags(fs, &c.Timers)
	c.TLS.Flags(fs)
	process.LinkFlag(fs, &c.Link)
	c.MTLS.Flags(fs)
	c.MTLS.CallerFlags(fs)
	flags.Group(fs, flags.Connections, "name", "chat", "link", "tls-cert", "tls-key", "mtls-cert", "mtls-key", "mtls-ca", "mtls-callees")
	flags.Group(fs, flags.Limits, "max-streams")
	flags.Group(fs, flags.Timeouts)
	c.HTTPFlags(fs)
}

// HTTPFlags adds only the flags for HTTP.
func (c *Config) HTTPFlags(fs *flag.FlagSet) {
	fs.DurationVar(&c.SocketLifetime, "socket-lifetime", DefaultSocketLifetime, "how long a WebSocket of /v1/responses or /v1/converse may be open; its last answer may finish")
	fs.Int64Var(&c.MaxBody, "max-body", DefaultMaxBody, "maximum `bytes` of a request's body")
	c.Images.Flags(fs)
	fs.DurationVar(&c.ReadTimeout, "read-timeout", DefaultReadTimeout, "how long a request may take to arrive, header and body together, and how long a new connection may send nothing")
	fs.DurationVar(&c.HeadersAfter, "headers-after", DefaultHeadersAfter, "how long the HTTP status of a stream waits for the request to be admitted; after that the status is 200, and a refusal is sent as an event")
	fs.DurationVar(&c.WriteTimeout, "write-timeout", DefaultWriteTimeout, "how long one write to a client may take before the reader counts as too slow. A write of a stopped stream may take 250ms")
	fs.DurationVar(&c.ClientTimeout, "client-timeout", DefaultClientTimeout, "how long a client may leave sent data unacknowledged before it counts as gone; 0 for the system's own limit")
	fs.BoolVar(&c.TrustForwarded, "trust-forwarded", false, "take the last address of X-Forwarded-For as the client's: all connections come from proxies that set it")
	fs.IntVar(&c.MaxUnsent, "max-unsent", DefaultMaxUnsent, "maximum `bytes` that wait in the kernel for a slow client before writes to it block; 0 for the system's own limit")
	fs.DurationVar(&c.KeepAlive, "keep-alive", DefaultKeepAlive, "how long a stream may be silent before its reader gets a comment; 0 for no comments")
	fs.Var(&c.Origins, "cors-origin", "`origin` whose pages may use this service, such as https://app.example; repeated, or separated by commas")
	fs.Var(&c.Hosts, "host", "host `name` of a listener on loopback, besides localhost and its addresses; repeated, or separated by commas")
	fs.BoolVar(&c.Strict, "strict", false, "refuse requests with fields that are unknown or cannot be honoured, instead of leaving the fields out and naming them in the header whence-ignored")
	c.Admin.Flags(fs)
	c.Connections.Flags(fs)
	flags.Group(fs, flags.Limits, "max-body", "max-unsent", "max-images", "image-bytes", "max-connections", "max-connections-per-address")
	flags.Group(fs, flags.Access, "trust-forwarded", "trusted-proxy", "admin-listen", "no-console", "cors-origin", "host", "strict", "image-urls", "image-any-port")
	flags.Group(fs, flags.Timeouts)
	c.streamFlags(fs)
}

// streamFlags adds the flags for streams that can be read again.
func (c *Config) streamFlags(fs *flag.FlagSet) {
	fs.TextVar(&c.Leave, "leave", leave.Policy{}, "`policy` for a stream of /v1/chat/completions whose client leaves: cancel, linger:<duration>, detach or drain")
	fs.TextVar(&c.LeaveEvents, "leave-events", DefaultLeaveEvents, "`policy` for a stream of /v1/streams without a reader")
	fs.IntVar(&c.Replay.Bytes, "replay-bytes", replay.DefaultBytes, "maximum `bytes` of the replay log, over all streams")
	fs.IntVar(&c.Replay.StreamBytes, "replay-stream-bytes", replay.DefaultStreamBytes, "maximum `bytes` of the replay log, per stream")
	fs.DurationVar(&c.Replay.TTL, "replay-ttl", replay.DefaultTTL, "how long a stream is kept in the replay log after its end")
	fs.DurationVar(&c.Replay.MemoTTL, "response-ttl", replay.DefaultMemoTTL, "how long a stored response of /v1/responses is kept in the replay log after its end, if that is longer than --replay-ttl")
	fs.BoolVar(&c.StoreResponses, "store-responses", true, "store the responses of /v1/responses whose request leaves out store, as OpenAI does, if there is room; =false stores only those with store: true")
	fs.StringVar(&c.Redis, "redis", "", "`URL` of a Redis server through which instances share the replay log, such as redis://127.0.0.1:6379/0; without it, each instance keeps its own log in memory")
	fs.DurationVar(&c.RedisLease, "redis-lease", redislog.DefaultLease, "how long an instance may fail to reach Redis before other instances take over its streams; must be the same on all instances")
	fs.IntVar(&c.TakeoverBytes, "takeover-bytes", DefaultTakeoverBytes, "maximum `bytes` of a request that Redis keeps so that another instance can take its stream over; 0 keeps no requests, and streams end with their instance")
	fs.StringVar(&c.Keys, "keys", "", "YAML `file` with API keys and their tenants; each tenant sees only its own streams. Without it every caller is served")
	fs.BoolVar(&c.RefuseUncounted, "refuse-uncounted", false, "refuse the requests of keys with limits while Redis does not answer; without it, each instance then applies the limits to its own counts")
	fs.StringVar(&c.TokenKey, "token-key", "", "secret that signs read tokens, the same for all instances; without it tokens end with the process")
	fs.StringVar(&c.OperatorKey, "operator-key", "", "`key` that lists workers and the streams of all owners, and shows and stops every stream. Without it and --keys, lists are open")
	fs.DurationVar(&c.TokenTTL, "token-ttl", DefaultTokenTTL, "how long a read token is valid")
	flags.Group(fs, flags.Access, "keys", "refuse-uncounted", "token-key", "token-ttl", "operator-key")
	flags.Group(fs, flags.Kept)
	flags.Secret(fs, "redis", "token-key", "operator-key")
}

// maxMaxBody bounds MaxBody, so that every request fits into the chat-service's message limit.
const maxMaxBody = DefaultMaxBody

// maxSocketMessage bounds a message of a conversation over a WebSocket besides MaxBody, in bytes: several may
// wait, also at the chat-service.
const maxSocketMessage = 3 << 20

// Validate checks c.
func (c *Config) Validate() error {
	switch {
	case c.MaxBody < 1 || c.MaxBody > maxMaxBody:
		return fmt.Errorf("--max-body is %d; it must be 1 to %d", c.MaxBody, maxMaxBody)
	case c.MaxStreams < 1:
		return fmt.Errorf("--max-streams is %d; it must be at least 1", c.MaxStreams)
	case c.ReadTimeout <= 0 || c.WriteTimeout <= 0 || c.HeadersAfter <= 0:
		return errors.New("--read-timeout, --write-timeout and --headers-after must be over 0")
	case c.ClientTimeout < 0 || c.MaxUnsent < 0 || c.KeepAlive < 0 || c.SocketLifetime < 0:
		return errors.New("--client-timeout, --max-unsent, --keep-alive and --socket-lifetime must not be negative")
	case c.Replay.Bytes < 0 || c.Replay.StreamBytes < 0 || c.Replay.TTL < 0 || c.Replay.MemoTTL < 0 || c.TokenTTL < 0:
		return errors.New("--replay-bytes, --replay-stream-bytes, --replay-ttl, --response-ttl and --token-ttl must not be negative")
	case c.TakeoverBytes < 0:
		return errors.New("--takeover-bytes must not be negative")
	case c.OperatorKey != "" && strings.TrimSpace(c.OperatorKey) == "":
		return errors.New("--operator-key is blank; give it a key, or leave it out")
	case c.Replay.StreamBytes > math.MaxInt32:
		return fmt.Errorf("--replay-stream-bytes is %d; it must be at most %d", c.Replay.StreamBytes, math.MaxInt32)
	}
	if _, err := discover.Parse(c.Chat); err != nil {
		return fmt.Errorf("--chat: %w", err)
	}
	if c.Redis != "" {
		if err := redisclient.CheckURL(c.Redis); err != nil {
			return fmt.Errorf("--redis: %w", err)
		}
		if err := redislog.CheckLease(c.RedisLease); c.RedisLease != 0 && err != nil {
			return fmt.Errorf("--redis-lease: %w", err)
		}
		if c.TokenKey == "" {
			return errors.New("--redis needs --token-key, so that instances accept each other's read tokens")
		}
	}
	if err := gate.CheckOrigins(c.Origins); err != nil {
		return fmt.Errorf("--cors-origin: %w", err)
	}
	if err := gate.CheckHosts(c.Hosts); err != nil {
		return fmt.Errorf("--host: %w", err)
	}
	if err := c.Connections.Validate(); err != nil {
		return err
	}
	if err := c.Admin.Validate(c.OperatorKey); err != nil {
		return err
	}
	if err := c.TLS.Validate(); err != nil {
		return err
	}
	if err := c.MTLS.Validate(); err != nil {
		return err
	}
	if err := c.Images.Validate(); err != nil {
		return err
	}
	return c.Timers.Validate()
}

// connect returns the Connect of c. several reports whether there may be several chat-services. hop
// counts the streams of each transport.
func (c *Config) connect(several bool, hop *metrics.Hop, log *slog.Logger) (chats.Connect, error) {
	if c.Connect != nil {
		return c.Connect, nil
	}
	identity, err := c.MTLS.Open(log)
	if err != nil {
		return nil, err
	}
	if c.Link {
		return chats.OverLinks(identity, log, several, hop.Carried()), nil
	}
	return chats.OverKitex(identity), nil
}

// Run serves on ln until ctx is done and the streams have drained.
func Run(ctx context.Context, c Config, ln net.Listener, log *slog.Logger) error {
	if c.TrustForwarded { // all connections come from proxies
		c.Connections.PerAddress = 0
	}
	if limit, allowed := descriptors.Limit(); c.Connections.Total > allowed {
		log.Warn("--max-connections is more than the limit of file descriptors allows; raise the limit (ulimit -n) or lower --max-connections",
			"max_connections", c.Connections.Total, "limit", limit, "allowed", allowed)
	}
	e, err := New(c, log)
	if err != nil {
		return err
	}
	defer e.Close() //nolint:errcheck // nothing is lost: the streams have drained
	unwatch, err := ledger.At(e.hop).Metrics.Discovery(func() int {
		if e.chats.Answers() {
			return 0
		}
		return 1
	})
	if err != nil {
		return err
	}
	defer unwatch() //nolint:errcheck // only a second call could fail
	// Keep discovering until the streams have drained: callers may still ask about running streams.
	finding, stop := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() { e.chats.Run(finding) })
	defer wg.Wait()
	defer stop()
	return e.besideAdmin(ctx, func(ctx context.Context) error { return e.Serve(ctx, ln) })
}
