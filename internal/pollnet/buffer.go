package pollnet

import "github.com/cloudwego/netpoll"

// bufferSize is the size of the read buffer that a connection begins with, in bytes, and of the
// smallest buffer of netpoll. A connection keeps its buffer for as long as it is open, and reads
// more at a time once the buffer was full. netpoll's 8 KiB were a third of what an open stream costs
// api-service.
const bufferSize = 1 << 10

func init() { // netpoll reads its configuration when the first connection is made
	netpoll.LinkBufferCap = bufferSize
	_ = netpoll.Configure(netpoll.Config{BufferSize: bufferSize, LoadBalance: netpoll.RoundRobin}) // fails only for the number of pollers
}
