package load_test

import (
	"testing"

	"github.com/whence-dev/whence/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }
