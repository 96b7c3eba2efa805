package gateway

import (
	"errors"
	"flag"
	"fmt"

	"github.com/whence-dev/whence/api-service/edge"
	"github.com/whence-dev/whence/chat-service/server"
	"github.com/whence-dev/whence/internal/flags"
	"github.com/whence-dev/whence/llm-worker/worker"
	"github.com/whence-dev/whence/pkg/rpc/guard"
)

// A Config is the configuration of both services. Run sets the connection between them.
type Config struct {
	Edge edge.Config
	Chat server.Config
	// Worker is the configuration of the workers in this process, one for each server of its Upstream and
	// Further; without servers there are none.
	Worker worker.Config
	// ChatListen is the host:port of chat-service for gRPC callers; "" serves api-service alone.
	ChatListen string
}

// Flags adds the flags of both services to fs. A flag that both have is api-service's, and
// chat-service's has the prefix chat-, except for the shared flags.
func (c *Config) Flags(fs *flag.FlagSet) {
	fs.StringVar(&c.ChatListen, "chat-listen", "", "`host:port` on which chat-service serves gRPC callers, such as api-services of other processes; port 0 takes any free port; empty serves no gRPC callers")
	flags.Group(fs, flags.Connections, "chat-listen")
	c.Worker.UpstreamFlags(fs)
	api, chat := flag.NewFlagSet("", flag.ContinueOnError), flag.NewFlagSet("", flag.ContinueOnError)
	c.Edge.Flags(api)
	c.Chat.Flags(chat)
	api.VisitAll(func(f *flag.Flag) {
		switch {
		case f.Name == ownAddress:
		case shared[f.Name]:
			flags.Copy(fs, f, f.Name, f.Usage, both{f.Value, chat.Lookup(f.Name).Value})
		default:
			fs.Var(f.Value, f.Name, f.Usage)
		}
	})
	chat.VisitAll(func(f *flag.Flag) {
		switch {
		case shared[f.Name]:
		case api.Lookup(f.Name) != nil:
			flags.Copy(fs, f, "chat-"+f.Name, "chat-service's --"+f.Name+": "+f.Usage, f.Value)
		default:
			fs.Var(f.Value, f.Name, f.Usage)
		}
	})
}

// ownAddress is the flag of api-service with the address of the chat-service.
const ownAddress = "chat"

// shared are the flags that set both services.
var shared = map[string]bool{"max-streams": true, "drain": true, "link": true, "mtls-cert": true, "mtls-key": true, "mtls-ca": true, "mtls-callees": true}

// both sets two flags at once. They have equal defaults.
type both struct{ api, chat flag.Value }

// String implements flag.Value.
func (b both) String() string {
	if b.api == nil { // of the zero value, for package flag
		return ""
	}
	return b.api.String()
}

// Set implements flag.Value.
func (b both) Set(s string) error {
	if err := b.api.Set(s); err != nil {
		return err
	}
	return b.chat.Set(s)
}

// Get implements flag.Getter.
func (b both) Get() any {
	v, ok := b.api.(flag.Getter)
	if !ok {
		return nil
	}
	return v.Get()
}

// IsBoolFlag reports whether the flag needs no value.
func (b both) IsBoolFlag() bool {
	v, ok := b.api.(interface{ IsBoolFlag() bool })
	return ok && v.IsBoolFlag()
}

// separate makes the default name of one service yield to an equal name of the other, because paths
// show both.
func (c *Config) separate() {
	switch {
	case c.Edge.Name != c.Chat.Name:
	case c.Chat.Name == server.DefaultName:
		c.Chat.Name += "/0"
	case c.Edge.Name == edge.DefaultName:
		c.Edge.Name += "/0"
	}
}

// Validate reports what is wrong with c.
func (c *Config) Validate() error {
	if c.ChatListen == "" && c.Chat.Registered.Register != "" {
		return errors.New("--register needs --chat-listen: api-services elsewhere must be able to call this chat-service")
	}
	named := *c
	if named.separate(); named.Edge.Name == named.Chat.Name {
		return fmt.Errorf("--name and --chat-name are both %q; give them different names, because paths show both", c.Edge.Name)
	}
	if err := c.Chat.Validate(); err != nil {
		return err
	}
	if err := c.validateWorkers(); err != nil {
		return err
	}
	return c.Edge.Validate()
}

// validateWorkers checks the options of the workers in this process.
func (c *Config) validateWorkers() error {
	switch served := c.Worker.Upstream.Upstream != ""; {
	case !served && c.Worker.Engine != "" && c.Worker.Engine != worker.Auto:
		return fmt.Errorf("--engine %.64q needs --upstream: a gateway has no other engine", c.Worker.Engine)
	case !served:
		return nil
	case c.Chat.Worker != server.DefaultWorker:
		return errors.New("--upstream runs a worker for each model server in this process: remove --worker, or remove --upstream")
	case c.Chat.Models != "":
		return errors.New("--upstream takes the models from the servers: remove --models, or remove --upstream")
	}
	return c.upstreams().Validate()
}

// upstreams returns the servers with workers in this process, which have the model and the limits of
// chat-service.
func (c *Config) upstreams() *Upstreams {
	w := c.Worker
	w.Model, w.ModelName, w.Grace, w.Link = c.Chat.Model, c.Chat.ModelName, c.Chat.Grace, c.Chat.Link
	w.NoDownload = c.Chat.NoDownload
	w.Metrics, w.Traces, w.Usage = c.Chat.Metrics, c.Chat.Traces, c.Chat.Usage
	w.Calls, w.Timers = guard.Default, worker.DefaultTimers
	return NewUpstreams(w, "127.0.0.1:0")
}
