package replay_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/whence-dev/whence/api-service/replay"
	"github.com/whence-dev/whence/api-service/replay/replaytest"
	"github.com/whence-dev/whence/internal/leaktest"
)

func TestMain(m *testing.M) {
	leaktest.Main(m)
}

func TestMemoryKeepsTheContract(t *testing.T) {
	replaytest.Run(t, func(_ *testing.T, l replay.Limits) replay.Log { return replay.NewMemory(l) })
}

var closing = replay.Event{Kind: replay.Ending, Data: "{}"}

func begin(t *testing.T, m replay.Log, id string) {
	t.Helper()
	if _, err := m.Begin(t.Context(), replay.Head{ID: id}); err != nil {
		t.Fatal(err)
	}
}

func isKept(t *testing.T, m replay.Log, id string) bool {
	t.Helper()
	r, err := m.Open(t.Context(), id)
	if err != nil && !errors.Is(err, replay.ErrUnknown) {
		t.Fatal(err)
	}
	if err == nil {
		r.Close()
	}
	return err == nil
}

func TestOldestEndedStreamMakesRoom(t *testing.T) {
	m := replay.NewMemory(replay.Limits{Bytes: 100_000})
	defer m.Close()
	text := replay.Event{Kind: replay.Delta, Data: strings.Repeat("x", 30_000)}
	for i := range 3 {
		begin(t, m, fmt.Sprint(i))
		if err := m.Append(fmt.Sprint(i), "", text); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Append("0", "", text); !errors.Is(err, replay.ErrFull) {
		t.Errorf("with live streams only: %v", err)
	}
	for _, id := range []string{"1", "0", "2"} {
		if err := m.Append(id, "", closing); err != nil {
			t.Fatal(err)
		}
	}
	begin(t, m, "3")
	if err := m.Append("3", "", text); err != nil {
		t.Fatal(err)
	}
	if isKept(t, m, "1") || !isKept(t, m, "0") || !isKept(t, m, "2") || !isKept(t, m, "3") {
		t.Error("the oldest ended stream was not evicted, or others were evicted as well")
	}
}

func TestHeadsAloneFillTheLog(t *testing.T) {
	m := replay.NewMemory(replay.Limits{Bytes: 100_000})
	defer m.Close()
	for i := range 1000 {
		if _, err := m.Begin(t.Context(), replay.Head{ID: fmt.Sprint(i)}); errors.Is(err, replay.ErrFull) {
			return
		}
	}
	t.Error("a thousand live streams fit into 100 kB")
}

func TestMemoryForgetsEndedStreamsAfterTheirTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := replay.NewMemory(replay.Limits{TTL: time.Minute, MemoTTL: 3 * time.Minute})
		defer m.Close()
		begin(t, m, "a")
		begin(t, m, "b")
		if _, err := m.Begin(t.Context(), replay.Head{ID: "response", Memo: "m"}); err != nil {
			t.Fatal(err)
		}
		if err := m.Append("response", "", closing); err != nil {
			t.Fatal(err)
		}
		r, err := m.Open(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Append("a", "", closing); err != nil {
			t.Fatal(err)
		}
		time.Sleep(40 * time.Second)
		if err := m.Append("b", "", closing); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20*time.Second + 1)
		synctest.Wait()
		if isKept(t, m, "a") || !isKept(t, m, "b") {
			t.Error("a is kept, or b is not")
		}
		if _, err := r.Read(t.Context(), 0); !errors.Is(err, replay.ErrUnknown) {
			t.Error("a reader still reads it", err)
		}
		time.Sleep(40 * time.Second)
		synctest.Wait()
		if isKept(t, m, "b") || !isKept(t, m, "response") {
			t.Error("b is kept, or a response is not")
		}
		time.Sleep(80 * time.Second)
		synctest.Wait()
		if isKept(t, m, "response") {
			t.Error("a response is kept")
		}
	})
}

func BenchmarkMemory(b *testing.B) {
	m := replay.NewMemory(replay.Limits{Bytes: 1 << 30, StreamBytes: 1 << 30})
	defer m.Close()
	if _, err := m.Begin(b.Context(), replay.Head{ID: "s"}); err != nil {
		b.Fatal(err)
	}
	r, err := m.Open(b.Context(), "s")
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for i := range b.N {
		if err := m.Append("s", "", replay.Event{Kind: replay.Delta, Data: " token"}); err != nil {
			b.Fatal(err)
		}
		if p, err := r.Read(b.Context(), uint64(i)); err != nil || len(p.Events) != 1 {
			b.Fatal(p, err)
		}
	}
}
