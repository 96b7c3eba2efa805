package fleet

import (
	"testing"

	"github.com/whence-dev/whence/pkg/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }
