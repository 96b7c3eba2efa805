package client

import (
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"
)

// TestMain fails if tests leave goroutines behind. It needs no library: this module has no
// dependencies, for its users' sake.
func TestMain(m *testing.M) {
	before := runtime.NumGoroutine()
	status := m.Run()
	tick := time.NewTicker(time.Millisecond)
	for deadline := time.Now().Add(2 * time.Minute); status == 0 && runtime.NumGoroutine() > before; <-tick.C {
		if time.Now().After(deadline) {
			stacks := make([]byte, 1<<20)
			fmt.Printf("goroutines leaked:\n%s\n", stacks[:runtime.Stack(stacks, true)])
			status = 1
		}
	}
	os.Exit(status)
}
