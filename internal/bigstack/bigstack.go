// Package bigstack starts goroutines that have a large stack from the beginning.
//
// Serving a request takes about 16 KiB of stack. The runtime gives a goroutine 2 KiB, and doubles
// the stack whenever it is full, each time with a copy of all frames. That took a seventh of
// chat-service's CPU time for a short request.
package bigstack

// frame is the part of the stack that Go reserves, in bytes. The runtime rounds the size of a stack
// up to 16 KiB then, which is the largest size that it has caches for.
const frame = 10 << 10

// Go runs f on a new goroutine with a stack of 16 KiB. The garbage collector shrinks the stack of a
// goroutine that uses less than a quarter of it.
func Go(f func()) {
	go func() {
		reserve()
		f()
	}()
}

// reserve makes the runtime grow the stack while there is one small frame to copy.
//
//go:noinline
func reserve() {
	var room [frame]byte
	touch(&room)
}

// touch keeps the compiler from removing the frame of its caller.
//
//go:noinline
func touch(room *[frame]byte) { room[0] = 1 }
