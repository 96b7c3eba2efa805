package process

import (
	"flag"

	"github.com/whence-dev/whence/pkg/rpc"
)

// TimerFlags adds the flags of t to fs, with the values of t as defaults.
func TimerFlags(fs *flag.FlagSet, t *rpc.Timers) {
	fs.DurationVar(&t.Deadline, "deadline", t.Deadline, "how long a stream may take; 0 means no limit")
	fs.DurationVar(&t.FirstToken, "first-token-timeout", t.FirstToken, "how long a stream may wait for its first token; 0 means no limit")
	fs.DurationVar(&t.Stall, "stall-timeout", t.Stall, "how long a stream may go without a token; 0 means no limit")
}

// IdleFlag adds the flag of t for hops whose callers may send requests of several messages.
func IdleFlag(fs *flag.FlagSet, t *rpc.Timers) {
	fs.DurationVar(&t.Idle, "idle-timeout", t.Idle, "how long a stream may wait for its caller's next message, such as the next turn of a conversation; 0 means no limit")
}

// LinkFlag adds the flag that lets streams between our own services go over links. It is on by default.
func LinkFlag(fs *flag.FlagSet, links *bool) {
	fs.BoolVar(links, "link", true, "carry streams between services over links: a few connections that carry many streams each, at a lower cost than gRPC. Both ends must allow it; until a link exists, streams go over gRPC. Other callers see no difference")
}

// LinkPortFlag adds the flag for the port of the links of a service.
func LinkPortFlag(fs *flag.FlagSet, port *int) {
	fs.IntVar(port, "link-port", 0, "`port` for links, at the address of --listen; 0 takes the port of --listen plus 10, or any free port if that one is taken. Callers find it by themselves")
}
