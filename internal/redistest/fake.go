package redistest

import (
	"bufio"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Greeting is what a server answers to HELLO.
const Greeting = "%1\r\n$5\r\nproto\r\n:3\r\n"

// Bulk returns a string as a server writes it.
func Bulk(text string) string { return "$" + strconv.Itoa(len(text)) + "\r\n" + text + "\r\n" }

// Fake runs something that listens where a Redis server is expected, until the test has ended, and
// returns its address. For each command of a client it writes what answer returns, even if that is
// no reply. answer is called by several goroutines.
func Fake(t testing.TB, answer func(command []string) string) (addr string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	open := map[net.Conn]bool{}
	all.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open[conn] = true
			mu.Unlock()
			all.Go(func() {
				defer func() {
					mu.Lock()
					defer mu.Unlock()
					delete(open, conn)
					_ = conn.Close()
				}()
				converse(conn, answer)
			})
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		mu.Lock()
		for conn := range open {
			_ = conn.Close()
		}
		mu.Unlock()
		all.Wait()
	})
	return ln.Addr().String()
}

// converse answers the commands of a client.
func converse(conn net.Conn, answer func(command []string) string) {
	in := bufio.NewReader(conn)
	for {
		command, err := readCommand(in)
		if err != nil {
			return
		}
		if _, err := io.WriteString(conn, answer(command)); err != nil {
			return
		}
	}
}

// readCommand reads an array of strings.
func readCommand(in *bufio.Reader) (command []string, err error) {
	n, err := readLength(in)
	for ; err == nil && n > 0; n-- {
		var size int
		if size, err = readLength(in); err != nil {
			break
		}
		text := make([]byte, size+2)
		if _, err = io.ReadFull(in, text); err == nil {
			command = append(command, string(text[:size]))
		}
	}
	return command, err
}

func readLength(in *bufio.Reader) (int, error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(line[1:]))
}
