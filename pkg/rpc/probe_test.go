package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/whence-dev/whence/pkg/rpc"
)

func TestProbeFailuresAreSaidInWords(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	_ = ln.Close()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, refused := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{})
	for want, err := range map[string]error{
		"it cannot be reached: connection refused": refused,
		"it did not answer within 1s":              status.Error(codes.DeadlineExceeded, "context deadline exceeded while waiting for connections to become ready"),
		"the engine has no memory":                 status.Error(codes.Internal, "the engine has no memory"),
		"it cannot be reached: no such host":       status.Error(codes.Unavailable, `dns: A record lookup error: lookup nobody.invalid on 10.0.0.2:53: no such host`),
		"it cannot be reached: EOF":                status.Error(codes.Unavailable, `connection error: desc = "error reading server preface: EOF"`),
	} {
		if got := rpc.ProbeFailure(err, time.Second); got != want {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
	if got := rpc.ProbeFailure(fmt.Errorf("asked: %w", context.DeadlineExceeded), 2*time.Second); got != "it did not answer within 2s" {
		t.Error(got)
	}
	if got := rpc.ProbeFailure(errors.New(strings.Repeat("ö", 1000)), time.Second); len(got) > 400 || !strings.HasSuffix(got, "ö…") {
		t.Error(got)
	}
}
