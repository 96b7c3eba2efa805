package main

import (
	"context"
	"flag"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/whence-dev/whence/api-service/edge"
	"github.com/whence-dev/whence/internal/leaktest"
)

func TestMain(m *testing.M) {
	edge.LogTo(io.Discard)
	leaktest.Main(m)
}

// TestPathLeavesNothingBehind runs the whole path in this process, with streams that complete, that
// are refused and that are left, and ends it; TestMain then looks for goroutines.
func TestPathLeavesNothingBehind(t *testing.T) {
	var c config
	c.flags(flag.NewFlagSet("test", flag.ContinueOnError))
	c.chat, c.worker, c.grace = "127.0.0.1:0", "127.0.0.1:0", 10*time.Second
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var path sync.WaitGroup
	path.Go(func() {
		if err := run(ctx, c, ln, slog.New(slog.DiscardHandler)); err != nil {
			t.Error(err)
		}
	})
	if !ready(t.Context(), ln.Addr()) {
		t.Fatal("not ready")
	}
	var clients sync.WaitGroup
	for i := range 30 {
		clients.Go(func() {
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			messages, stream := `[{"role":"user","content":"Count to 50."}]`, "true"
			switch i % 4 {
			case 1:
				messages = `[]`
			case 2:
				stream = "false"
			case 3:
				time.AfterFunc(time.Duration(i)*time.Millisecond, leave)
			}
			body := `{"model":"whence-tiny","temperature":0,"stream":` + stream + `,"messages":` + messages + `}`
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+ln.Addr().String()+"/v1/chat/completions", strings.NewReader(body))
			if err != nil {
				t.Error(err)
				return
			}
			req.Header.Set("Content-Type", "application/json")
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				if i%4 != 3 {
					t.Error(err)
				}
				return
			}
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			switch i % 4 {
			case 0:
				if err != nil || !strings.HasSuffix(string(text), "data: [DONE]\n\n") {
					t.Errorf("%v: %s", err, text)
				}
			case 1:
				if resp.StatusCode != http.StatusBadRequest {
					t.Error(resp.StatusCode)
				}
			case 2:
				if !strings.Contains(string(text), "48, 49, 50") {
					t.Errorf("%s", text)
				}
			}
		})
	}
	clients.Wait()
	http.DefaultClient.CloseIdleConnections()
	cancel()
	path.Wait()
}

func TestOneServiceThatFailsEndsTheOthers(t *testing.T) {
	var c config
	c.flags(flag.NewFlagSet("test", flag.ContinueOnError))
	c.chat, c.worker = "127.0.0.1:0", "127.0.0.1:0"
	c.server.Model = t.TempDir() // an empty directory has no model
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := run(t.Context(), c, ln, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "config.json") {
		t.Error(err)
	}
}
