package discover

import (
	"flag"
	"testing"

	"github.com/whence-dev/whence/internal/leaktest"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "8") // the tests wait for leases to end; the flag exists
	leaktest.Main(m)
}
