package lab

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/whence-dev/whence/internal/loopback"
)

// The services. Each name is that of a command. The name of a hop is the name of its service, with a
// number if there may be several instances.
const (
	APIService  = "api-service"
	ChatService = "chat-service"
	LLMWorker   = "llm-worker"
)

// ServiceOf returns the service of a hop.
func ServiceOf(hop string) string {
	service, _, _ := strings.Cut(hop, "/")
	return service
}

// A Layout says which services a path has, each in its own process, and their flags.
type Layout struct {
	Workers, Chats, Edges   int
	All, Worker, Chat, Edge []string
	Own                     map[string][]string // further flags of a hop
	Registry                string              // the URL of an etcd through which services find each other; "" for fixed addresses
	Wired                   string              // the service whose processes are called through wires; "" for none
}

// A Launcher starts a process of a service.
type Launcher func(service string, args ...string) (*Process, error)

// A Path is a running layout.
type Path struct {
	Workers, Chats, Edges []*Process
	Wires                 []*Wire // to the processes of Layout.Wired
}

// Start starts the services of a layout, and returns when every chat-service uses every worker and
// every api-service answers. The path that it returns has the processes that it has started, even if
// there is an error.
func (l *Layout) Start(ctx context.Context, launch Launcher) (*Path, error) {
	p := &Path{}
	workers, err := p.all(&p.Workers, l, launch, LLMWorker, l.Workers, l.Worker)
	if err != nil {
		return p, err
	}
	chats, err := p.all(&p.Chats, l, launch, ChatService, l.Chats, append([]string{"--worker", workers}, l.Chat...))
	if err != nil {
		return p, err
	}
	if _, err := p.all(&p.Edges, l, launch, APIService, l.Edges, append([]string{"--chat", chats}, l.Edge...)); err != nil {
		return p, err
	}
	return p, p.ready(ctx)
}

// all starts the processes of a service. It returns the addresses at which they are called.
func (p *Path) all(to *[]*Process, l *Layout, launch Launcher, service string, n int, flags []string) (string, error) {
	var addrs []string
	for i := range n {
		hop := service
		if n > 1 || service == LLMWorker {
			hop += "/" + strconv.Itoa(i)
		}
		args := []string{"--listen", "127.0.0.1:0", "--name", hop, "--log-json"}
		if l.Registry != "" && service != APIService {
			args = append(args, "--register", l.Registry+"/"+service)
		}
		links := ""
		if l.Wired == service {
			var err error
			if links, err = loopback.FreeAddr(); err != nil {
				return "", err
			}
			args = append(args, "--link-port", links[strings.LastIndexByte(links, ':')+1:])
		}
		one, err := launch(service, slices.Concat(args, l.All, flags, l.Own[hop])...)
		if one != nil {
			one.Name = hop
			*to = append(*to, one)
		}
		if err != nil {
			return "", err
		}
		if one.Addr, err = one.Listening(); err != nil {
			return "", err
		}
		addr := one.Addr
		if l.Wired == service {
			w, err := NewWire(addr, links)
			if err != nil {
				return "", err
			}
			p.Wires = append(p.Wires, w)
			addr = w.Addr()
		}
		addrs = append(addrs, addr)
	}
	if l.Registry != "" {
		return l.Registry + "/" + service, nil
	}
	return strings.Join(addrs, ","), nil
}

// ready waits until the services use each other: first over gRPC, then over links.
func (p *Path) ready(ctx context.Context) error {
	for _, chat := range p.Chats {
		healthy := map[string]bool{}
		if err := chat.count(len(p.Workers), "that its workers are healthy", func(r Record) bool {
			fresh := r.Msg == "worker is healthy" && !healthy[r.Worker]
			healthy[r.Worker] = healthy[r.Worker] || fresh
			return fresh
		}); err != nil {
			return err
		}
		if err := chat.Linked(len(p.Workers)); err != nil {
			return err
		}
	}
	for _, edge := range p.Edges {
		if err := edge.Linked(len(p.Chats)); err != nil {
			return err
		}
		if err := edge.Answers(ctx, edge.Addr); err != nil {
			return err
		}
	}
	return nil
}

// Linked waits until a service has links to a number of callees. It returns at once if the service
// makes none.
func (p *Process) Linked(callees int) error {
	if slices.Contains(p.Args, "--link=false") {
		return nil
	}
	linked := map[string]bool{}
	return p.count(callees, "links to its callees", func(r Record) bool {
		fresh := r.Msg == "streams go over links" && !linked[r.Target]
		linked[r.Target] = linked[r.Target] || fresh
		return fresh
	})
}

// count waits until match has accepted n records.
func (p *Process) count(n int, what string, match func(Record) bool) error {
	if n == 0 {
		return nil
	}
	_, err := p.Logged(what, func(r Record) bool {
		if match(r) {
			n--
		}
		return n == 0
	})
	return err
}

// All returns the processes of all services, callees first.
func (p *Path) All() []*Process { return slices.Concat(p.Workers, p.Chats, p.Edges) }

// Alive returns the processes that have not ended.
func (p *Path) Alive() []*Process {
	return slices.DeleteFunc(p.All(), func(one *Process) bool { return one.Ended() })
}

// End ends all processes and wires, callers first.
func (p *Path) End() {
	for _, one := range slices.Backward(p.All()) {
		one.End()
	}
	for _, w := range p.Wires {
		w.End()
	}
}
