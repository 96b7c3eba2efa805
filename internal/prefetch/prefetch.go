// Package prefetch loads the memory of a stream into the processor's cache before the stream's next
// message is handled.
//
// A stream has its state in dozens of objects: one or a few per layer. Between two tokens of the
// stream, thousands of tokens of other streams pass, and the state leaves the cache. Without
// prefetching, the code that handles a token waits for each object in turn, which takes several
// times as long as all of its other work. Package prefetch requests all of them at once, so that the
// waits overlap.
//
// Layers add their objects to the stream's context, and the connection at the bottom collects them
// once per call. A wrong or missing object costs time, and has no other effect. So the objects of an
// abandoned call stay among those of its stream.
package prefetch

import (
	"context"
	"slices"
	"sync"
	"unsafe"
)

const (
	// line is the size of a cache line in bytes. On processors with longer lines, some prefetches
	// are redundant.
	line = 64
	// maxObject bounds the prefetched part of an object, in bytes.
	maxObject = 8 * line
	// captured is the usual size of a function with its variables, in bytes.
	captured = 40
	// maxLines bounds the lines of a stream.
	maxLines = 256
)

// Memory is an object that is touched with each message of a stream.
type Memory struct {
	at   unsafe.Pointer
	size uintptr // in bytes
}

// Of returns the Memory of an object. p may be nil.
func Of[T any](p *T) Memory {
	return Memory{at: unsafe.Pointer(p), size: unsafe.Sizeof(*p)} //nolint:gosec // the address is not used as one
}

// Before returns the Memory of the part of an object before one of its fields.
func Before[T, F any](p *T, field *F) Memory {
	return Memory{at: unsafe.Pointer(p), size: uintptr(unsafe.Pointer(field)) - uintptr(unsafe.Pointer(p))} //nolint:gosec // the address is not used as one
}

// Slice returns the Memory of the elements of a slice up to its capacity.
func Slice[T any](s []T) Memory {
	return Memory{at: unsafe.Pointer(unsafe.SliceData(s)), size: uintptr(cap(s)) * unsafe.Sizeof(*new(T))} //nolint:gosec // the address is not used as one
}

// Func returns the Memory of the variables that a function has captured. f may be nil.
func Func[F any](f F) Memory {
	var word unsafe.Pointer
	if unsafe.Sizeof(f) != unsafe.Sizeof(word) {
		return Memory{}
	}
	return Memory{at: *(*unsafe.Pointer)(unsafe.Pointer(&f)), size: captured} //nolint:gosec // a function value is a pointer
}

// A Toucher adds the objects that its methods touch with each message to a List. It must not call
// functions of this package that use the List of a context.
type Toucher interface{ Touched(to *List) }

// Touched adds the objects of v to a List if v is a Toucher.
func Touched(v any, to *List) {
	if t, ok := v.(Toucher); ok {
		t.Touched(to)
	}
}

type key struct{}

// A layer is a context with the objects of its stream.
type layer struct {
	context.Context //nolint:containedctx // it is a context

	objects *List
}

// Value implements context.Context.
func (l *layer) Value(k any) any {
	if k == (key{}) {
		return l.objects
	}
	return l.Context.Value(k)
}

// A List has the objects of a stream. It is large while the layers add to it, and then small until the
// stream moves to another callee.
type List struct {
	mu    sync.Mutex
	set   Set      // all objects, while lines is nil
	lines *scratch // their lines, in the order in which they were added
	n     int      // number of lines
}

type scratch [maxLines]uintptr

var scratches = sync.Pool{New: func() any { return new(scratch) }}

func of(ctx context.Context) *List {
	l, _ := ctx.Value(key{}).(*List)
	return l
}

// With adds objects that the stream of ctx touches with each message. The stream is that of the
// first call of With or Fork above. All contexts of one stream share its objects.
func With(ctx context.Context, more ...Memory) context.Context {
	ctx, l := list(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.Add(more...)
	return ctx
}

// WithTouched is With for the objects of v, if v is a Toucher.
func WithTouched(ctx context.Context, v any) context.Context {
	ctx, l := list(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	Touched(v, l)
	return ctx
}

// list returns the List of ctx's stream, and a context that has it.
func list(ctx context.Context) (context.Context, *List) {
	if l := of(ctx); l != nil {
		return ctx, l
	}
	l := new(List)
	return &layer{ctx, l}, l
}

// Settle makes the list of a stream's objects small, once the layers have added theirs. Collect does
// so, too.
func Settle(ctx context.Context) {
	if l := of(ctx); l != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.settle()
	}
}

// Fork returns a context for one of several calls below a stream. Objects added to it are not
// loaded for the other calls.
func Fork(ctx context.Context) context.Context {
	fork := new(List)
	if l := of(ctx); l != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		fork.set = l.settle()
	}
	return &layer{ctx, fork}
}

// Carry returns to with the objects of from's stream, for a call within this process.
func Carry(from, to context.Context) context.Context {
	if l := of(from); l != nil {
		return &layer{to, l}
	}
	return to
}

// Collect adds objects to those of ctx's stream, and returns all of them. A caller collects them
// once per call.
func Collect(ctx context.Context, more ...Memory) Set {
	l := of(ctx)
	if l == nil {
		l = new(List)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.Add(more...)
	return l.settle()
}

// Add adds objects, as far as there is room. The caller holds mu, or is a Toucher.
func (l *List) Add(more ...Memory) {
	if l.lines == nil {
		l.lines = scratches.Get().(*scratch) //nolint:forcetypeassert // the pool has nothing else
		l.n = len(l.set.appendTo(l.lines[:0]))
	}
	l.n = len(appendLines(l.lines[:l.n], more))
}

// settle returns the set of all objects. The caller holds mu.
func (l *List) settle() Set {
	if l.lines != nil {
		l.set = newSet(l.lines[:l.n])
		scratches.Put(l.lines)
		l.lines = nil
	}
	return l.set
}

// A Set is a list of cache lines. The zero value is empty. A Set does not keep the objects alive:
// to load memory that has another use by now is harmless.
type Set struct {
	// A run has the address of its first line, and in the lowest bits the number of lines after it.
	runs []uintptr
}

// appendTo appends the addresses of the lines, as far as maxLines allows.
func (s Set) appendTo(lines []uintptr) []uintptr {
	for _, run := range s.runs {
		for n := range run&(line-1) + 1 {
			if len(lines) == maxLines {
				return lines
			}
			lines = append(lines, run&^(line-1)+n*line)
		}
	}
	return lines
}

// newSet returns the Set of lines, whose memory it uses, but does not keep.
func newSet(lines []uintptr) Set {
	slices.Sort(lines)
	runs := join(slices.Compact(lines))
	if len(runs) == 0 {
		return Set{}
	}
	return Set{slices.Clone(runs)}
}

// appendLines appends the addresses of the lines of the objects.
func appendLines(lines []uintptr, objects []Memory) []uintptr {
	for _, o := range objects {
		if o.at == nil || o.size == 0 {
			continue
		}
		at := uintptr(o.at)
		last := (at + min(o.size, maxObject) - 1) &^ (line - 1)
		for at &^= line - 1; at <= last && len(lines) < maxLines; at += line {
			lines = append(lines, at)
		}
	}
	return lines
}

// join joins the lines, which are in order, into runs. It uses the memory of lines.
func join(lines []uintptr) (runs []uintptr) {
	runs = lines[:0]
	for _, at := range lines {
		if last := len(runs) - 1; last >= 0 {
			if n := runs[last] & (line - 1); n < line-1 && runs[last]-n+(n+1)*line == at {
				runs[last]++
				continue
			}
		}
		runs = append(runs, at)
	}
	return runs
}

// Load starts to load the lines into the cache, and returns at once.
func (s Set) Load() {
	if len(s.runs) > 0 {
		load(&s.runs[0], len(s.runs))
	}
}

// Start starts to load an object.
func Start[T any](p *T) {
	at := uintptr(unsafe.Pointer(p)) //nolint:gosec // the address is not used as one
	more := (at+min(unsafe.Sizeof(*p), maxObject)-1)/line - at/line
	run := at&^(line-1) | more
	load(&run, 1)
}
