package problem_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/whence-dev/whence/pkg/rpc/problem"
)

func TestOfProbeDescribesFailures(t *testing.T) {
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
		if got := problem.OfProbe("it", err, time.Second); got != want {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
	if got := problem.OfProbe("it", fmt.Errorf("asked: %w", context.DeadlineExceeded), 2*time.Second); got != "it did not answer within 2s" {
		t.Error(got)
	}
	if got := problem.OfProbe("it", errors.New(strings.Repeat("ö", 1000)), time.Second); len(got) > 400 || !strings.HasSuffix(got, "ö…") {
		t.Error(got)
	}
}

// TestLastingProblemsAreLoggedAgain: at once when the kind changes, and otherwise with growing pauses.
func TestLastingProblemsAreLoggedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log problem.Log
		due := func(want bool, text string) {
			t.Helper()
			if log.Due(text) != want {
				t.Errorf("%s: due is %v", text, !want)
			}
		}
		var logged []int // seconds
		for second := range 20 * 60 {
			if log.Due("it cannot be reached: connection refused") {
				logged = append(logged, second)
			}
			time.Sleep(time.Second)
		}
		if want := []int{0, 10, 30, 70, 150, 310, 610, 910}; !slices.Equal(logged, want) {
			t.Errorf("logged after %v seconds; want %v", logged, want)
		}
		due(true, "it answered with status 503: request 1")
		time.Sleep(9 * time.Second)
		due(false, "it answered with status 503: request 2")
		time.Sleep(time.Second)
		due(true, "it answered with status 503: request 3")
		log.Clear()
		due(true, "it answered with status 503: request 3")
	})
}
