package bench

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"
)

// client keeps a connection per concurrent stream.
var client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 4096, DialContext: (&net.Dialer{}).DialContext}}

// ready waits until the path answers.
func (p *Path) ready() error {
	deadline := time.Now().Add(20 * time.Second)
	for {
		resp, err := client.Get("http://" + p.Edge + "/readyz") //nolint:noctx // bounded by the deadline
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("bench: the path is not ready: %w", err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// A Result is a client's measurement of one stream.
type Result struct {
	Events int           // data lines with text
	TTFT   time.Duration // from the request to the first text
}

var (
	contentMark = []byte(`"content":"`)
	doneMark    = []byte("data: [DONE]")
)

// Stream asks for an answer of n tokens and reads it to its end.
func (p *Path) Stream(ctx context.Context, n int) (Result, error) {
	body := fmt.Sprintf(`{"model":"whence-tiny","stream":true,"temperature":0,"ignore_eos":true,"max_tokens":%d,"messages":[{"role":"user","content":"Tell me a long story about a fox in the harbor."}]}`, n)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+p.Edge+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return Result{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	begun := time.Now()
	resp, err := client.Do(req)
	if err != nil {
		return Result{}, err
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end
	var r Result
	done := false
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		switch {
		case bytes.Contains(lines.Bytes(), contentMark):
			if r.Events++; r.Events == 1 {
				r.TTFT = time.Since(begun)
			}
		case bytes.HasPrefix(lines.Bytes(), doneMark):
			done = true
		}
	}
	if err := lines.Err(); err != nil {
		return r, err
	}
	if !done {
		return r, fmt.Errorf("bench: status %d, and no [DONE] after %d events", resp.StatusCode, r.Events)
	}
	return r, nil
}
