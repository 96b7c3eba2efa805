package replay_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/whence-dev/whence/api-service/replay"
)

const benchStreams = 200

// BenchmarkAppend200 appends tokens to 200 streams from all cores.
func BenchmarkAppend200(b *testing.B) {
	m := replay.NewMemory(replay.Limits{Bytes: 4 << 30, StreamBytes: 1 << 30})
	defer m.Close()
	for i := range benchStreams {
		if _, err := m.Begin(b.Context(), replay.Head{ID: fmt.Sprint(i)}); err != nil {
			b.Fatal(err)
		}
	}
	ids := make([]string, benchStreams)
	for i := range ids {
		ids[i] = fmt.Sprint(i)
	}
	var next atomic.Int64
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		i := int(next.Add(benchStreams / 2))
		for pb.Next() {
			i++
			if err := m.Append(ids[i%benchStreams], "", replay.Event{Kind: replay.Delta, Data: " token"}); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// BenchmarkAppendAndRead200 also reads each token once.
func BenchmarkAppendAndRead200(b *testing.B) {
	m := replay.NewMemory(replay.Limits{Bytes: 4 << 30, StreamBytes: 1 << 30})
	defer m.Close()
	var worker atomic.Int64
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		name := worker.Add(1)
		ids, readers, after := make([]string, benchStreams/2), make([]replay.Reader, benchStreams/2), make([]uint64, benchStreams/2)
		for i := range ids {
			ids[i] = fmt.Sprint(name, "-", i)
			if _, err := m.Begin(b.Context(), replay.Head{ID: ids[i]}); err != nil {
				b.Error(err)
				return
			}
			r, err := m.Open(b.Context(), ids[i])
			if err != nil {
				b.Error(err)
				return
			}
			defer r.Close()
			readers[i] = r
		}
		for i := 0; pb.Next(); i = (i + 1) % len(ids) {
			if err := m.Append(ids[i], "", replay.Event{Kind: replay.Delta, Data: " token"}); err != nil {
				b.Error(err)
				return
			}
			p, err := readers[i].Read(b.Context(), after[i])
			if err != nil || len(p.Events) != 1 {
				b.Error(p, err)
				return
			}
			after[i] = p.Events[0].Seq
		}
	})
}

// BenchmarkDelta200 appends tokens to 200 streams from all cores through their writers.
func BenchmarkDelta200(b *testing.B) {
	m := replay.NewMemory(replay.Limits{Bytes: 4 << 30, StreamBytes: 1 << 30})
	defer m.Close()
	var writers []*replay.Writer
	for i := range benchStreams {
		w, err := m.Add(replay.Head{ID: fmt.Sprint(i)})
		if err != nil {
			b.Fatal(err)
		}
		writers = append(writers, w)
	}
	var next atomic.Int64
	token := []byte(" token")
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		i := int(next.Add(benchStreams / 2))
		for pb.Next() {
			i++
			if err := writers[i%benchStreams].Delta(token, nil); err != nil {
				b.Error(err)
				return
			}
		}
	})
}
