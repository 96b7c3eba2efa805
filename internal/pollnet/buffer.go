package pollnet

import "github.com/cloudwego/netpoll"

// bufferSize is the initial size of a connection's read buffer, and the size of netpoll's smallest
// buffer, in bytes. A connection keeps its buffer while it is open, and reads more at a time after
// the buffer was full. netpoll's default of 8 KiB was a third of the memory of an open stream on
// api-service.
const bufferSize = 1 << 10

func init() { // netpoll reads its configuration when the first connection is made
	netpoll.LinkBufferCap = bufferSize
	_ = netpoll.Configure(netpoll.Config{BufferSize: bufferSize, LoadBalance: netpoll.RoundRobin}) // fails only for the number of pollers
}
