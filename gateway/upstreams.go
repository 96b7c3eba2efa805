package gateway

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/whence-dev/whence/chat-service/models"
	"github.com/whence-dev/whence/chat-service/server"
	"github.com/whence-dev/whence/llm-worker/worker"
	"github.com/whence-dev/whence/pkg/rpc/inprocess"
)

// Upstreams are model servers with a worker for each of them in this process, which chat-service calls
// by function calls; others may call it on its address. Workers of servers that serve
// the same model are workers of one model of chat-service.
//
// A server that does not answer holds up nothing else: its worker starts, and its model is served, once it
// does.
type Upstreams struct {
	workers []worker.Config
	invalid error  // why there are no workers
	listen  string // of the first worker

	changed chan struct{} // capacity 1: there is another member

	mu      sync.Mutex // guards the following fields
	members []member
	waits   []string // why each server cannot be used yet; "" for a member
}

// A member is a server that has been recognised, and its worker.
type member struct {
	name     string // of the model
	aliases  []string
	adapters []string // that the server lists
	files    string   // path of the model's files
	addr     string   // of the worker
	conn     *inprocess.Conn
}

// NewUpstreams returns the servers of --upstream. c is the configuration of each worker. The worker of the
// first server listens on listen, and all others on free ports of the loopback.
func NewUpstreams(c worker.Config, listen string) *Upstreams {
	u := &Upstreams{listen: listen, changed: make(chan struct{}, 1)}
	u.workers, u.invalid = c.Workers()
	for i := range u.workers {
		u.workers[i].Files = true
		u.waits = append(u.waits, "it has not answered yet")
	}
	return u
}

// Validate reports what is wrong with the configuration of the workers.
func (u *Upstreams) Validate() error {
	for i := range u.workers {
		if err := u.workers[i].Validate(); err != nil {
			return err
		}
	}
	return u.invalid
}

// Run recognises the servers and runs their workers until ctx is done and their streams have drained. The
// failure of a worker ends all. Run skips a server that it cannot use, unless it is the only one.
func (u *Upstreams) Run(ctx context.Context, log *slog.Logger) error {
	workers, all := errgroup.WithContext(ctx)
	for i := range u.workers {
		workers.Go(func() error { return u.run(all, i, log) })
	}
	return workers.Wait()
}

// run recognises a server and runs its worker.
func (u *Upstreams) run(ctx context.Context, i int, log *slog.Logger) error {
	c := u.workers[i]
	aliases, err := c.Recognize(ctx, log, func(problem string) { u.wait(i, problem) })
	switch {
	case ctx.Err() != nil: // the process ends before the server has answered
		return nil
	case err != nil && len(u.workers) > 1: // the others serve
		log.Error("a model server cannot be used", "upstream", c.Upstream.Upstream, "err", err)
		u.wait(i, "the server cannot be used; the log says why")
		return nil
	case err != nil:
		return fmt.Errorf("--upstream %s: %w", c.Upstream.Upstream, err)
	}
	listen := "127.0.0.1:0"
	if i == 0 {
		listen = u.listen
	}
	ln, err := net.Listen("tcp", listen)
	if err != nil {
		return fmt.Errorf("--worker-listen: %w", err)
	}
	u.wait(i, "the server is tried with a token")
	m := member{name: c.ModelName, aliases: aliases, adapters: c.Adapters, files: c.Model, addr: ln.Addr().String()}
	join := sync.OnceFunc(func() { u.join(i, m) })
	var late *time.Timer
	c.Local = func(conn *inprocess.Conn) {
		m.conn = conn
		late = time.AfterFunc(joinAfter, join)
	}
	c.Healthy = join
	defer func() {
		if late != nil {
			late.Stop()
		}
	}()
	return worker.Run(ctx, c, ln, log)
}

// joinAfter is when a worker joins its model although it is not healthy, so that chat-service learns why. One
// that is healthy joins at once: a start without faults logs no warning.
const joinAfter = 5 * time.Second

func (u *Upstreams) wait(i int, problem string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.waits[i] = problem
}

func (u *Upstreams) join(i int, m member) {
	u.mu.Lock()
	u.members, u.waits[i] = append(u.members, m), ""
	u.mu.Unlock()
	select {
	case u.changed <- struct{}{}:
	default:
	}
}

// Near returns the connection to the worker at addr, or nil if it is none of u's.
func (u *Upstreams) Near(addr string) *inprocess.Conn {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, m := range u.members {
		if m.addr == addr {
			return m.conn
		}
	}
	return nil
}

// Missing returns why servers, and with them perhaps models, are still missing, for people; "" if none is.
// It names no addresses.
func (u *Upstreams) Missing() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	var all []string
	for i, problem := range u.waits {
		if problem == "" {
			continue
		}
		if len(u.waits) > 1 {
			problem = fmt.Sprintf("server %d of --upstream: %s", i+1, problem)
		}
		all = append(all, problem)
	}
	return strings.Join(all, "; ")
}

// Addresses returns where the workers that have joined listen.
func (u *Upstreams) Addresses() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	var all []string
	for _, m := range u.members {
		all = append(all, m.addr)
	}
	return all
}

// First returns the name of the first model that is served, or "".
func (u *Upstreams) First() string {
	cards := u.cards(models.Card{})
	if len(cards) == 0 {
		return ""
	}
	return cards[0].ID()
}

// Serve makes chat take its models and their workers from u.
func (u *Upstreams) Serve(chat *server.Config) {
	chat.Source, chat.Missing, chat.Near = u.Follow, u.Missing, u.Near
}

// Follow gives set the models of the servers whenever there is another one, until ctx is done. base has
// everything of a card that no server tells.
func (u *Upstreams) Follow(ctx context.Context, base models.Card, set func([]models.Card)) {
	for {
		select {
		case <-u.changed:
			set(u.cards(base))
		case <-ctx.Done():
			return
		}
	}
}

// cards returns a card for each model, in the order in which the models came.
func (u *Upstreams) cards(base models.Card) []models.Card {
	u.mu.Lock()
	defer u.mu.Unlock()
	var cards []models.Card
	for _, m := range u.members {
		card := m.card(base)
		i := slices.IndexFunc(cards, func(c models.Card) bool { return c.ID() == card.ID() })
		if i < 0 {
			cards = append(cards, card)
			continue
		}
		cards[i].Workers += "," + m.addr
		cards[i].Aliases = append(cards[i].Aliases, m.aliases...)
		cards[i].Adapters = slices.DeleteFunc(cards[i].Adapters, func(name string) bool { return !slices.Contains(card.Adapters, name) }) // a stream may go to each
	}
	if len(cards) == 1 && len(base.Adapters) > 0 { // servers that list none may have them, too
		cards[0].Adapters = slices.Clone(base.Adapters)
	}
	taken := map[string]bool{}
	for i := range cards {
		taken[cards[i].ID()] = true
	}
	take := func(name string) (again bool) {
		again = taken[name]
		taken[name] = true
		return again
	}
	for i := range cards { // a name that two models have stands for the first of them
		cards[i].Aliases = slices.DeleteFunc(cards[i].Aliases, take)
		cards[i].Adapters = slices.DeleteFunc(cards[i].Adapters, take)
	}
	return cards
}

// card returns the card of the member's model. Its adapters are those that the server lists; if --adapters names
// some, only these.
func (m *member) card(base models.Card) models.Card {
	named := base.Adapters
	base.Adapters = slices.DeleteFunc(slices.Clone(m.adapters), func(name string) bool {
		return len(named) > 0 && !slices.Contains(named, name) || !models.MayBeName(name)
	})
	base.Adapters = base.Adapters[:min(len(base.Adapters), models.MaxAdapters)]
	base.Name, base.Directory, base.Workers, base.Aliases = cmp.Or(m.name, base.Name), m.files, m.addr, slices.Clone(m.aliases)
	return base
}
