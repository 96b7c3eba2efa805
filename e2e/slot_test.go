package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os/exec"
	"testing"
	"time"

	"github.com/whence-dev/whence/lab"
)

// oneSlot lets one stream run slowly and one stream wait.
var oneSlot = flags{worker: []string{"--max-running", "1", "--max-queued", "1", "--pace", "20"}}

// freed waits until the worker has released a stream, and checks that every hop reports that the
// client left.
func (w *whence) freed(t *testing.T, stream string) {
	t.Helper()
	w.free(t)
	w.clientGone(t, stream)
}

// free waits until the worker has released a stream whose client has just left.
func (w *whence) free(t *testing.T) {
	t.Helper()
	begun := time.Now()
	w.idle(t)
	t.Logf("the slot was free %v after the client had left", time.Since(begun).Round(time.Microsecond))
}

func TestKilledCurlFreesTheSlot(t *testing.T) {
	curl := tool(t, "curl")
	eachTopology(t, oneSlot, func(t *testing.T, w *whence) {
		body, err := json.Marshal(greedy(long, "stream", true))
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(curl, "-sN", w.url("/v1/chat/completions"), "-H", "Content-Type: application/json", "-H", idName+": curl", "-d", string(body))
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer cmd.Wait()
		watchdog := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
		defer watchdog.Stop()
		events := lab.NewEvents(out)
		for range 3 { // role and some text
			if _, err := events.Next(); err != nil {
				t.Fatal(err)
			}
		}
		w.busy(t, 1, 0)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		w.freed(t, "curl")
		w.works(t)
	})
}

// dial sends a request on a new connection and reads nothing. The connection is closed after the
// test.
func (w *whence) dial(t *testing.T, a ask, id string) *net.TCPConn {
	t.Helper()
	conn := w.connect(t)
	w.ask(t, conn, a, id)
	return conn
}

// ask writes a request.
func (w *whence) ask(t *testing.T, conn net.Conn, a ask, id string) {
	t.Helper()
	w.askFor(t, conn, "/v1/chat/completions", a, id)
}

// askFor writes a request for a path.
func (w *whence) askFor(t *testing.T, conn net.Conn, path string, a ask, id string) {
	t.Helper()
	body, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n%s: %s\r\nContent-Length: %d\r\n\r\n%s", path, w.api, idName, id, len(body), body)
	if _, err := conn.Write(b.Bytes()); err != nil {
		t.Fatal(err)
	}
}
