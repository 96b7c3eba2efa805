package prefetch

import (
	"context"
	"maps"
	"math/rand/v2"
	"testing"
	"unsafe"
)

// An object has several cache lines.
type object struct {
	next *object
	n    int
	_    [2*line + 8]byte
}

var kept []any

// onHeap returns v, whose memory is not on the stack: the stack may move.
func onHeap[T any](v T) T {
	kept = append(kept, v)
	return v
}

func addresses(s Set) map[uintptr]bool {
	all := map[uintptr]bool{}
	for _, run := range s.runs {
		for n := range run&(line-1) + 1 {
			all[run&^(line-1)+n*line] = true
		}
	}
	return all
}

func TestCollectCoversEveryLineOfEveryLayer(t *testing.T) {
	objects := onHeap(make([]object, 5))
	above, below, call := &objects[0], &objects[2], &objects[4]
	n := 0
	captured := func() { n++ }
	ctx := With(t.Context(), Of(above), Func(captured))
	ctx = With(context.WithoutCancel(ctx), Of(below))
	got := Collect(ctx, Of(call), Of[object](nil), Func[func()](nil))
	lines := addresses(got)
	for _, o := range []*object{above, below, call} {
		for i := range unsafe.Sizeof(*o) {
			if at := uintptr(unsafe.Add(unsafe.Pointer(o), i)); !lines[at&^(line-1)] {
				t.Fatalf("byte %d of an object is in no line", i)
			}
		}
	}
	if want := 3*int(unsafe.Sizeof(object{})+line-1)/line + 3; len(lines) > want {
		t.Errorf("%d lines, want at most %d", len(lines), want)
	}
	got.Load() // must not fault
	captured()
}

func TestCarryTakesTheObjectsAcrossACall(t *testing.T) {
	var o object
	callee := Carry(With(t.Context(), Of(&o)), context.Background())
	if got := Collect(callee); len(addresses(got)) == 0 {
		t.Error("the callee's context has no objects")
	}
	if ctx := Carry(t.Context(), context.Background()); ctx != context.Background() {
		t.Error("a context without objects was wrapped")
	}
}

// TestAForkSharesOnlyWhatIsAbove: each of two calls has the objects of the stream and its own ones.
func TestAForkSharesOnlyWhatIsAbove(t *testing.T) {
	objects := make([]*[line]byte, 3)
	for i := range objects {
		objects[i] = onHeap(new([line]byte))
	}
	ctx := With(t.Context(), Of(objects[0]))
	one, two := With(Fork(ctx), Of(objects[1])), With(Fork(ctx), Of(objects[2]))
	want := addresses(Collect(t.Context(), Of(objects[0]), Of(objects[2])))
	if got := addresses(Collect(two)); !maps.Equal(got, want) {
		t.Errorf("a fork has the lines %v, want %v", got, want)
	}
	if got := addresses(Collect(one)); maps.Equal(got, want) {
		t.Error("both forks have the same objects")
	}
}

// TestCollectAgainHasLaterObjects: a second call of a stream has the objects added since the first.
func TestCollectAgainHasLaterObjects(t *testing.T) {
	first, second := onHeap(new([line]byte)), onHeap(new([line]byte))
	ctx := With(t.Context(), Of(first))
	before := addresses(Collect(ctx))
	With(ctx, Of(second))
	Settle(ctx)
	after := addresses(Collect(ctx))
	if want := addresses(Collect(t.Context(), Of(first), Of(second))); !maps.Equal(after, want) {
		t.Errorf("lines %v, after %v, want %v", after, before, want)
	}
}

func TestSetsAreBounded(t *testing.T) {
	ctx := t.Context()
	var all []*[line]byte // at distinct addresses
	for range 2 * maxLines {
		all = append(all, new([line]byte))
		ctx = With(ctx, Of(all[len(all)-1])) //nolint:fatcontext // many layers are the point
	}
	s := Collect(ctx)
	if len(addresses(s)) != maxLines {
		t.Errorf("%d lines, want %d", len(addresses(s)), maxLines)
	}
	if big := Collect(With(t.Context(), Of(new([1 << 20]byte)))); len(addresses(big)) > maxObject/line+1 {
		t.Errorf("%d lines of one object", len(addresses(big)))
	}
	var none Set
	none.Load()
}

// BenchmarkCold walks the objects of one stream after another when none of them is in the cache.
func BenchmarkCold(b *testing.B) {
	const streams, each = 64, 60
	all := make([]*object, streams*each)
	for i := range all {
		all[i] = new(object)
	}
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	sets := make([]Set, streams)
	for s := range sets {
		mine := all[s*each : (s+1)*each]
		var memory []Memory
		for i, o := range mine[1:] {
			mine[i].next = o
			memory = append(memory, Of(o))
		}
		sets[s] = Collect(b.Context(), memory...)
	}
	other := make([]byte, 64<<20)
	for _, c := range []struct {
		name     string
		prefetch bool
	}{{"as they come", false}, {"prefetched", true}} {
		b.Run(c.name, func(b *testing.B) {
			at := streams
			for b.Loop() {
				if at == streams {
					b.StopTimer()
					for i := 0; i < len(other); i += line {
						other[i]++
					}
					at = 0
					b.StartTimer()
				}
				if c.prefetch {
					sets[at].Load()
				}
				for o := all[at*each]; o != nil; o = o.next {
					o.n++
				}
				at++
			}
		})
	}
}
