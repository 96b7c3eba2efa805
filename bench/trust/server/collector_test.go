package server

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestAStalledCollectorAcceptsAndDoesNotAnswer: a push waits until its client gives up.
func TestAStalledCollectorAcceptsAndDoesNotAnswer(t *testing.T) {
	c, err := NewCollector()
	if err != nil {
		t.Fatal(err)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	push := func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+c.Addr+"/v1/metrics", strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		return err
	}
	if c.Used() {
		t.Error("a new collector is used")
	}
	if err := push(t.Context()); err != nil || !c.Used() {
		t.Errorf("a push is not answered: %v", err)
	}
	if err := c.Stall(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := push(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a stalled collector answers: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}
