//go:build unix

package nowait_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"

	"github.com/whence-dev/whence/internal/nowait"
)

// pair returns the two ends of a TCP connection.
func pair(t *testing.T) (a, b net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	a, err = net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b, err = ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = a.Close(), b.Close() })
	return a, b
}

func TestReadWaits(t *testing.T) {
	a, b := pair(t)
	got := make(chan string)
	go func() {
		defer close(got)
		s, buf := nowait.New(b), make([]byte, 16)
		for {
			n, err := s.Read(buf)
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				t.Error(err)
				return
			}
			got <- string(buf[:n])
		}
	}()
	s := nowait.New(a)
	for _, token := range []string{"one", "two", "three"} {
		if n, err := s.Write([]byte(token)); n != len(token) || err != nil {
			t.Errorf("the write returned %d, %v", n, err)
		}
		if read := <-got; read != token {
			t.Errorf("%q was read, want %q", read, token)
		}
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if rest, ok := <-got; ok {
		t.Errorf("%q was read after the end", rest)
	}
}

func TestWriteDoesNotWait(t *testing.T) {
	a, b := pair(t)
	s, chunk, all := nowait.New(a), bytes.Repeat([]byte("x"), 1<<20), 0
	for full := false; !full; {
		n, err := s.Write(chunk)
		if err != nil {
			t.Fatal(err)
		}
		all += n
		full = n == 0
	}
	if n, err := io.CopyN(io.Discard, b, int64(all)); err != nil {
		t.Errorf("%d of %d bytes arrived: %v", n, all, err)
	}
}

func TestReadEndsWithTheConnection(t *testing.T) {
	a, b := pair(t)
	ended := make(chan error)
	go func() {
		_, err := nowait.New(b).Read(make([]byte, 1))
		ended <- err
	}()
	if _, err := nowait.New(a).Write(nil); err != nil {
		t.Error(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Errorf("the read ended with %v", err)
	}
	if _, err := nowait.New(b).Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the write ended with %v", err)
	}
}

func TestErrorsOfTheKernel(t *testing.T) {
	if n, err := nowait.Write(-1, []byte("x")); n != 0 || !errors.Is(err, syscall.EBADF) {
		t.Errorf("a write to an invalid descriptor returned %d, %v", n, err)
	}
}

func TestOtherConnectionsHaveNoSocket(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	if nowait.New(a) != nil {
		t.Error("a pipe in memory has a socket")
	}
}
