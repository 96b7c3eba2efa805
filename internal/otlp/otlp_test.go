package otlp_test

import (
	"strings"
	"testing"

	"github.com/whence-dev/whence/internal/otlp"
)

func TestAddresses(t *testing.T) {
	for _, good := range []otlp.Collector{"", "host:4318", "http://host:4318", "http://host:4318/", "grpc://host:4317", "grpc://[::1]:4317", "grpcs://host:4317", "https://host:4318"} {
		if err := good.Validate(); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []otlp.Collector{"host", "ftp://host:4318", "http://host", "grpc://", "://host:1", "http://host:4318/v1/traces", "GRPC://host:4317"} {
		if err := bad.Validate(); err == nil || !strings.Contains(err.Error(), "--otlp") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
