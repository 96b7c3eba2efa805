package kitexstream_test

import (
	"io"
	"testing"

	"github.com/cloudwego/kitex/pkg/klog"

	"github.com/whence-dev/whence/internal/leaktest"
)

func TestMain(m *testing.M) {
	klog.SetOutput(io.Discard)
	leaktest.Main(m)
}
