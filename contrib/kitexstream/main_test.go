package kitexstream_test

import (
	"io"
	"testing"

	"github.com/cloudwego/kitex/pkg/klog"

	"github.com/whence-dev/whence/contrib/kitexstream/internal/kitextest"
)

func TestMain(m *testing.M) {
	klog.SetOutput(io.Discard)
	kitextest.Main(m)
}
