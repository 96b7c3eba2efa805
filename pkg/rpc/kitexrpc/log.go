package kitexrpc

import (
	"bytes"
	"io"

	"github.com/cloudwego/kitex/pkg/klog"
	"github.com/cloudwego/netpoll"
)

// LogTo sends the log of Kitex and netpoll, from now on and in the whole process, to w, one line at
// a time. Kitex logs each stream over TTHeader Streaming that a handler ends with an exception.
// LogTo drops these lines, because package rpc logs each ending, except the lines with the stack of
// a panic, which package rpc has not seen.
func LogTo(w io.Writer) {
	klog.SetLevel(klog.LevelInfo)
	klog.SetOutput(endingFilter{w})
	netpoll.SetLoggerOutput(w)
}

// An endingFilter drops Kitex's lines about endings.
type endingFilter struct{ io.Writer }

func (w endingFilter) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("processing ttstream request error")) && !bytes.Contains(line, []byte("\nstack=")) {
		return len(line), nil
	}
	return w.Writer.Write(line)
}
