package edge

import (
	"io"

	"github.com/cloudwego/hertz/pkg/common/hlog"

	"github.com/whence-dev/whence/api-service/replay"
	"github.com/whence-dev/whence/pkg/rpc/kitexrpc"
)

// LogTo sends what Hertz, the Kitex client behind it, and the Redis client log from now on, in the whole process, to w, a line
// at a time.
func LogTo(w io.Writer) {
	hlog.SetSilentMode(true) // of connections that say nothing sensible, or break: anybody could fill the log
	hlog.SetLevel(hlog.LevelInfo)
	hlog.SetOutput(w)
	kitexrpc.LogTo(w)
	replay.LogTo(w)
}
