package usage

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/log"
	sdk "go.opentelemetry.io/otel/sdk/log"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// full returns a record with all fields.
func full() Record {
	return Record{
		Kind: Orphan, ID: "a", Part: "a.1", Hop: "chat-service", Tenant: "t", Key: "k", Model: "m", Surface: "chat",
		Prompt: 9, Cached: new(uint32(4)), Generated: 7, Delivered: 5, Wasted: 2, Estimated: true,
		Reason: "peer_lost", Origin: "api-service", Path: []string{"api-service", "chat-service"}, Worker: "llm-worker/0",
		Received: noon, FirstToken: new(noon.Add(time.Second)), Ended: noon.Add(2 * time.Second),
	}
}

// counts has the numbers of written and lost records of one sink.
type counts struct {
	mu            sync.Mutex
	written, lost int
}

func (c *counts) count(_ string, lost bool, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if lost {
		c.lost += n
	} else {
		c.written += n
	}
}

func (c *counts) want(t *testing.T, written, lost int) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.written != written || c.lost != lost {
		t.Errorf("%d records were written and %d lost, want %d and %d", c.written, c.lost, written, lost)
	}
}

// A gate is a sink whose writes block until the gate is open, or until their context ends.
type gate struct {
	open chan struct{}
	got  []Record
	fail error
}

func (*gate) Name() string { return "gate" }

func (g *gate) Write(ctx context.Context, records []Record) (int, error) {
	select {
	case <-g.open:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	if g.fail != nil {
		return 0, g.fail
	}
	g.got = append(g.got, records...)
	return len(records), nil
}

func (*gate) Close(context.Context) error { return nil }

// TestSlowSinkDelaysNoStream: Add returns at once. Records beyond the bound are lost, counted and
// logged, and the others are written in order.
func TestSlowSinkDelaysNoStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines bytes.Buffer
		var n counts
		sink := &gate{open: make(chan struct{})}
		l := NewLog(slog.New(slog.NewTextHandler(&lines, nil)), n.count, sink)
		l.Add(Record{})
		synctest.Wait() // the sink has the first record
		for range maxQueued + 10 {
			l.Add(Record{ID: "a"})
		}
		n.want(t, 0, 10)
		close(sink.open)
		if err := l.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		l.Add(Record{})
		n.want(t, 1+maxQueued, 11)
		if len(sink.got) != 1+maxQueued {
			t.Errorf("the sink got %d records", len(sink.got))
		}
		if text := lines.String(); !strings.Contains(text, "usage records are lost") || !strings.Contains(text, "sink=gate") {
			t.Error("logged:", text)
		}
	})
}

func TestRecordsThatASinkRefusesAreLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n counts
		sink := &gate{open: make(chan struct{}), fail: errors.New("no space left")}
		close(sink.open)
		l := NewLog(slog.New(slog.DiscardHandler), n.count, sink)
		l.Add(Record{})
		if err := l.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		n.want(t, 0, 1)
	})
}

// TestCloseIsBounded: Close ends with its context, and reports the lost records.
func TestCloseIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n counts
		l := NewLog(slog.New(slog.DiscardHandler), n.count, &gate{open: make(chan struct{})})
		for range 3 {
			l.Add(Record{})
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := l.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		n.want(t, 0, 3)
	})
}

func TestNilLogAcceptsAllRecords(t *testing.T) {
	var l *Log
	l.Add(full())
}

// records reads a file of records.
func records(t *testing.T, path string) (all []Record) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		var r Record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%v in %q", err, line)
		}
		all = append(all, r)
	}
	return all
}

func TestFileHasALineForEachRecordAndIsReopened(t *testing.T) {
	path := filepath.Join(t.TempDir(), "usage.jsonl")
	f, err := openFile(path)
	if err != nil {
		t.Fatal(err)
	}
	write := func(ids ...string) {
		t.Helper()
		var batch []Record
		for _, id := range ids {
			r := full()
			r.ID = id
			batch = append(batch, r)
		}
		if n, err := f.Write(t.Context(), batch); n != len(ids) || err != nil {
			t.Fatal(n, err)
		}
	}
	write("a", "b")
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	write("c")
	if err := f.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	old, current := records(t, path+".1"), records(t, path)
	if len(old) != 2 || len(current) != 1 || old[1].ID != "b" || current[0].ID != "c" {
		t.Errorf("%d records in the old file, %d in the new one", len(old), len(current))
	}
	if want := full(); !reflect.DeepEqual(old[0], want) {
		t.Errorf("%+v, want %+v", old[0], want)
	}
}

// A limitedWriter accepts a number of bytes, and then fails.
type limitedWriter struct {
	bytes.Buffer
	room int
}

func (s *limitedWriter) Write(b []byte) (int, error) {
	n := min(len(b), s.room)
	s.room -= n
	s.Buffer.Write(b[:n])
	if n < len(b) {
		return n, errors.New("full")
	}
	return n, nil
}

// TestTornEndOfAnEarlierProcessSpoilsNoRecord: a full disk or a crash can leave a part of a line.
func TestTornEndOfAnEarlierProcessSpoilsNoRecord(t *testing.T) {
	for before, want := range map[string]string{
		"": "", "{}\n": "{}\n", "{}\n{\"id\":\"b": "{}\n{\"id\":\"b\n",
	} {
		path := filepath.Join(t.TempDir(), "usage.jsonl")
		if err := os.WriteFile(path, []byte(before), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := openFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := f.Write(t.Context(), []Record{at(Final, "c", 0, 1, 5)}); n != 1 || err != nil {
			t.Error(n, err)
		}
		if err := f.Close(t.Context()); err != nil {
			t.Error(err)
		}
		got, err := os.ReadFile(path)
		line, ok := strings.CutPrefix(string(got), want)
		var r Record
		if err != nil || !ok || json.Unmarshal([]byte(line), &r) != nil || r.ID != "c" {
			t.Errorf("after %q the file has %q: %v", before, got, err)
		}
	}
}

// TestTornLineSpoilsNoOther: after a write that failed within a line, the next write begins with a
// line end.
func TestTornLineSpoilsNoOther(t *testing.T) {
	to := &limitedWriter{room: 5}
	n, torn, err := writeLines(to, []byte("aa\nbbb\n"), false)
	if n != 1 || !torn || err == nil {
		t.Error(n, torn, err)
	}
	to.room = 0
	if n, torn, err = writeLines(to, []byte("\ncc\n"), torn); n != 0 || !torn || err == nil {
		t.Error(n, torn, err)
	}
	to.room = 100
	if n, torn, err = writeLines(to, []byte("\ncc\n"), torn); n != 1 || torn || err != nil {
		t.Error(n, torn, err)
	}
	if got := to.String(); got != "aa\nbb\ncc\n" {
		t.Errorf("%q", got)
	}
}

// An exporter keeps the records that it is given.
type exporter struct{ got []sdk.Record }

func (e *exporter) Export(_ context.Context, records []sdk.Record) error {
	for _, r := range records {
		e.got = append(e.got, r.Clone())
	}
	return nil
}
func (*exporter) Shutdown(context.Context) error   { return nil }
func (*exporter) ForceFlush(context.Context) error { return nil }

// fields returns the names of the fields of a record in JSON.
func fields(t *testing.T, r Record) (names []string) {
	t.Helper()
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var object map[string]any
	if err := json.Unmarshal(b, &object); err != nil {
		t.Fatal(err)
	}
	for name := range object {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// TestLogRecordsHaveTheFieldsOfJSON: with the same names and values, for a full and for an empty
// record.
func TestLogRecordsHaveTheFieldsOfJSON(t *testing.T) {
	for _, r := range []Record{full(), {Kind: Final, ID: "a", Hop: "h", Reason: "completed", Origin: "w", Path: []string{"w"}}} {
		e := &exporter{}
		c := exportTo("whence", e)
		if n, err := c.Write(t.Context(), []Record{r, r}); n != 2 || err != nil {
			t.Fatal(n, err)
		}
		if err := c.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(e.got) != 2 {
			t.Fatalf("%d log records, want 2", len(e.got))
		}
		got := e.got[1]
		if got.EventName() != eventName || got.Severity() != log.SeverityInfo || !got.Timestamp().Equal(r.Ended) {
			t.Errorf("%s at %v, severity %v", got.EventName(), got.Timestamp(), got.Severity())
		}
		var names []string
		values := map[string]attribute.Value{}
		got.WalkAttributes(func(kv attribute.KeyValue) bool {
			name := strings.TrimPrefix(string(kv.Key), prefix)
			names, values[name] = append(names, name), kv.Value
			return true
		})
		slices.Sort(names)
		if want := fields(t, r); !slices.Equal(names, want) {
			t.Errorf("attributes %v, want %v", names, want)
		}
		if values["generated_tokens"].AsInt64() != int64(r.Generated) || values["id"].AsString() != r.ID || !slices.Equal(values["path"].AsStringSlice(), r.Path) {
			t.Errorf("values %v", values)
		}
	}
}

// TestOperationsListsEveryField compares the table in docs/reference/usage-records.md with the fields of a
// record, in order.
func TestOperationsListsEveryField(t *testing.T) {
	doc, err := os.ReadFile("../../docs/reference/usage-records.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(doc), "\n| usage record | ")
	if !found {
		t.Fatal("docs/reference/usage-records.md has no table of the usage record")
	}
	section, _, _ = strings.Cut(section, "\n\n")
	var listed, want []string
	for row := range strings.Lines(section) {
		if name, ok := strings.CutPrefix(row, "| `"); ok {
			name, _, _ = strings.Cut(name, "`")
			listed = append(listed, name)
		}
	}
	for i := range reflect.TypeFor[Record]().NumField() {
		name, _, _ := strings.Cut(reflect.TypeFor[Record]().Field(i).Tag.Get("json"), ",")
		want = append(want, name)
	}
	if !slices.Equal(listed, want) {
		t.Errorf("docs/reference/usage-records.md lists %v, the record has %v", listed, want)
	}
}

// at returns a record of a stream that lasted from second from to second to.
func at(kind Kind, id string, from, to int, generated uint32) Record {
	second := func(n int) time.Time { return noon.Add(time.Duration(n) * time.Second) }
	return Record{Kind: kind, ID: id, Prompt: 5, Generated: generated, Delivered: generated, Received: second(from), Ended: second(to)}
}

func resumed(r Record) Record {
	r.Resumed = true
	return r
}

// TestJoinCountsNoStreamTwice: for all combinations of records with one id.
func TestJoinCountsNoStreamTwice(t *testing.T) {
	for name, test := range map[string]struct {
		records []Record
		want    []uint32 // generated tokens of each record that counts
	}{
		"final alone":                                  {[]Record{at(Final, "a", 0, 2, 3)}, []uint32{3}},
		"final and what a worker lost":                 {[]Record{at(Orphan, "a", 0, 1, 9), at(Final, "a", 0, 2, 3)}, []uint32{3}},
		"orphan alone":                                 {[]Record{at(Orphan, "a", 0, 1, 9)}, []uint32{9}},
		"two choices without an edge":                  {[]Record{at(Orphan, "a", 0, 1, 9), at(Orphan, "a", 0, 2, 4)}, []uint32{13}},
		"an id that is used again":                     {[]Record{at(Final, "a", 0, 2, 3), at(Final, "a", 5, 6, 4)}, []uint32{3, 4}},
		"a retry after a crash":                        {[]Record{at(Orphan, "a", 0, 2, 9), at(Final, "a", 5, 6, 4)}, []uint32{9, 4}},
		"a takeover after a drain":                     {[]Record{at(Final, "a", 0, 2, 3), at(Final, "b", 0, 4, 1), resumed(at(Final, "a", 2, 6, 4))}, []uint32{1, 7}},
		"a takeover after a crash":                     {[]Record{at(Orphan, "a", 0, 2, 3), resumed(at(Final, "a", 3, 6, 4))}, []uint32{7}},
		"a takeover before the loss is noticed":        {[]Record{at(Orphan, "a", 0, 15, 3), resumed(at(Final, "a", 5, 20, 4))}, []uint32{7}},
		"the loss is noticed after the takeover's end": {[]Record{at(Orphan, "a", 0, 25, 3), resumed(at(Final, "a", 5, 20, 4))}, []uint32{7}},
		"two takeovers":                                {[]Record{at(Final, "a", 0, 2, 3), resumed(at(Final, "a", 3, 6, 4)), resumed(at(Final, "a", 7, 9, 1))}, []uint32{8}},
		"only the takeover is known":                   {[]Record{resumed(at(Final, "a", 3, 6, 4))}, []uint32{4}},
		"other ids":                                    {[]Record{at(Final, "a", 0, 2, 3), at(Orphan, "b", 0, 1, 9)}, []uint32{9, 3}},
	} {
		var got []uint32
		for _, r := range Join(test.records) {
			got = append(got, r.Generated)
			if r.Prompt != 5 {
				t.Errorf("%s: a prompt of %d tokens, want 5", name, r.Prompt)
			}
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

func TestOTLPNeedsACollector(t *testing.T) {
	c := Config{OTLP: true}
	err := c.Run("whence", "", slog.New(slog.DiscardHandler), func(string, bool, int) {}, func(*Log) error {
		t.Error("the services run")
		return nil
	})
	if err == nil || !strings.Contains(err.Error(), "--otlp") {
		t.Error(err)
	}
}
