package process

import (
	"flag"

	"github.com/whence-dev/whence/pkg/rpc"
)

// TimerFlags adds the flags of t to fs, with the values of t as defaults.
func TimerFlags(fs *flag.FlagSet, t *rpc.Timers) {
	fs.DurationVar(&t.Deadline, "deadline", t.Deadline, "how long a stream may take; 0 for no limit")
	fs.DurationVar(&t.FirstToken, "first-token-timeout", t.FirstToken, "how long a stream may wait for its first token; 0 for no limit")
	fs.DurationVar(&t.Stall, "stall-timeout", t.Stall, "how long a stream may go without a token; 0 for no limit")
}

// IdleFlag adds the flag of t for hops whose callers may send requests of several messages.
func IdleFlag(fs *flag.FlagSet, t *rpc.Timers) {
	fs.DurationVar(&t.Idle, "idle-timeout", t.Idle, "how long a stream may wait for its caller's next message, such as the next turn of a conversation; 0 for no limit")
}

// LinkFlag adds the flag that has the streams between our own services go over links, which is the default.
func LinkFlag(fs *flag.FlagSet, links *bool) {
	fs.BoolVar(links, "link", true, "carry streams between services over links, a few connections that carry many streams at a lower cost than gRPC, where both ends have this flag; streams go over gRPC until there is a link, and other callers see no difference")
}
