package kitexrpc

import (
	"io"

	"github.com/cloudwego/kitex/pkg/klog"
	"github.com/cloudwego/netpoll"
)

// LogTo sends what Kitex and netpoll log from now on, in the whole process, to w, a line at a time.
func LogTo(w io.Writer) {
	klog.SetLevel(klog.LevelInfo)
	klog.SetOutput(w)
	netpoll.SetLoggerOutput(w)
}
