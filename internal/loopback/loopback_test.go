package loopback_test

import (
	"testing"

	"github.com/whence-dev/whence/internal/loopback"
)

// TestAddressesAreDistinct: an address that was returned is not free for another server of the same
// process, although nothing listens on it yet.
func TestAddressesAreDistinct(t *testing.T) {
	seen := map[string]bool{}
	for range 500 {
		addr, err := loopback.FreeAddr()
		if err != nil || seen[addr] {
			t.Fatalf("%s, %v", addr, err)
		}
		seen[addr] = true
	}
}
