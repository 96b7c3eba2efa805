package usage

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/whence-dev/whence/internal/leaktest"
	"github.com/whence-dev/whence/internal/otlp"
)

// writerVariable turns the test binary into a process that writes usage records to its standard
// output.
const writerVariable = "WHENCE_TEST_USAGE_WRITER"

func TestMain(m *testing.M) {
	if os.Getenv(writerVariable) != "" {
		writeRecords()
		return
	}
	leaktest.Main(m)
}

// writeRecords writes a usage record for each byte of the standard input.
func writeRecords() {
	c := Config{File: standardOutput}
	err := c.Run("test", otlp.Collector(""), slog.New(slog.NewTextHandler(os.Stderr, nil)), func(string, bool, int) {}, func(l *Log) error {
		asks := bufio.NewScanner(os.Stdin)
		asks.Split(bufio.ScanBytes)
		for asks.Scan() {
			l.Add(full())
		}
		return asks.Err()
	})
	if err != nil {
		panic(err)
	}
}

// TestProcessOutlivesTheReaderOfItsRecords closes the pipe that is a process's standard output.
func TestProcessOutlivesTheReaderOfItsRecords(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	writer := exec.CommandContext(ctx, os.Args[0])
	writer.Env = append(os.Environ(), writerVariable+"=1")
	asks, err1 := writer.StdinPipe()
	records, err2 := writer.StdoutPipe()
	logs, err3 := writer.StderrPipe()
	for _, err := range []error{err1, err2, err3, writer.Start()} {
		if err != nil {
			t.Fatal(err)
		}
	}
	ask := func() {
		if _, err := asks.Write([]byte{'.'}); err != nil {
			t.Fatal(err)
		}
	}
	ask()
	if line, err := bufio.NewReader(records).ReadString('\n'); err != nil || !strings.Contains(line, `"kind":"orphan"`) {
		t.Fatalf("the first record is %q: %v", line, err)
	}
	if err := records.Close(); err != nil {
		t.Fatal(err)
	}
	ask()
	log := bufio.NewReader(logs)
	if line, err := log.ReadString('\n'); err != nil || !strings.Contains(line, `msg="usage records are lost"`) || !strings.Contains(line, "records=1") {
		t.Errorf("the log has %q: %v", line, err)
	}
	ask() // proves that the process still runs
	if err := asks.Close(); err != nil {
		t.Fatal(err)
	}
	rest, _ := io.ReadAll(log)
	if err := writer.Wait(); err != nil {
		t.Errorf("the process ended with %v, and logged %s", err, rest)
	}
}
