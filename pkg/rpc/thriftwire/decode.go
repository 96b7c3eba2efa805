package thriftwire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/whence-dev/whence/pkg/rpc/nesting"
)

// maxDepth bounds how deep structs, lists and maps may be nested.
const maxDepth = 64

var (
	errShort = errors.New("the thrift struct ends too early")
	errDeep  = fmt.Errorf("the thrift struct is nested deeper than %d", maxDepth)
)

// Decode sets m to the struct at the beginning of b, and returns the size of that struct in bytes.
// It keeps no part of b. It returns an error for a field whose type differs from the twin's, and
// for more nested structs than nesting.Max allows.
func Decode(b []byte, m proto.Message) (n int, err error) {
	proto.Reset(m)
	r := newReader(b)
	err = r.readStruct(m.ProtoReflect(), 0)
	return len(b) - len(r.rest), err
}

// DecodeField decodes a struct into m: the struct in the field with the given number of the struct
// at the beginning of b, such as the arguments of a method. It returns the size of the outer struct
// in bytes. found is false if there is no such field.
func DecodeField(b []byte, number int16, m proto.Message) (n int, found bool, err error) {
	r := newReader(b)
	for {
		t, got, err := r.field()
		if err != nil || t == stop {
			return len(b) - len(r.rest), found, err
		}
		if got == number && t == Struct {
			proto.Reset(m)
			found, err = true, r.readStruct(m.ProtoReflect(), 1)
		} else {
			err = r.skip(t, 1)
		}
		if err != nil {
			return len(b) - len(r.rest), found, err
		}
	}
}

// A reader reads from the remaining bytes.
type reader struct {
	rest    []byte
	max     int // the maximum number of structs, for errors
	structs int // the number of structs that may still be read
}

func newReader(b []byte) reader {
	n := nesting.Max(len(b))
	return reader{rest: b, max: n, structs: n + 1} // the outermost struct is not counted
}

// next returns the next n bytes.
func (r *reader) next(n int) ([]byte, error) {
	if n < 0 || n > len(r.rest) {
		return nil, errShort
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b, nil
}

func (r *reader) u32() (uint32, error) {
	b, err := r.next(4)
	if err != nil {
		return 0, err
	}
	return binary.BigEndian.Uint32(b), nil
}

func (r *reader) u64() (uint64, error) {
	b, err := r.next(8)
	if err != nil {
		return 0, err
	}
	return binary.BigEndian.Uint64(b), nil
}

// field reads the header of a field, or the end of a struct, for which it returns type stop.
func (r *reader) field() (t Type, number int16, err error) {
	b, err := r.next(1)
	if err != nil || Type(b[0]) == stop {
		return stop, 0, err
	}
	t = Type(b[0])
	if b, err = r.next(2); err != nil {
		return stop, 0, err
	}
	return t, int16(binary.BigEndian.Uint16(b)), nil
}

// size reads the number of elements of a container, whose elements take at least atLeast bytes
// each.
func (r *reader) size(atLeast int) (int, error) {
	n, err := r.u32()
	if err != nil {
		return 0, err
	}
	if uint64(n)*uint64(atLeast) > uint64(len(r.rest)) { // checked before memory is allocated
		return 0, errShort
	}
	return int(n), nil
}

// bytes reads a string or a binary. The result shares the input's memory.
func (r *reader) bytes() ([]byte, error) {
	n, err := r.u32()
	if err != nil {
		return nil, err
	}
	if uint64(n) > uint64(len(r.rest)) {
		return nil, errShort
	}
	return r.next(int(n))
}

func (r *reader) readStruct(m protoreflect.Message, depth int) error {
	if depth > maxDepth {
		return errDeep
	}
	if r.structs--; r.structs < 0 {
		return &nesting.Error{Max: r.max}
	}
	fields := m.Descriptor().Fields()
	for {
		t, number, err := r.field()
		if err != nil || t == stop {
			return err
		}
		fd := fields.ByNumber(protoreflect.FieldNumber(number))
		switch {
		case fd == nil:
			err = r.skip(t, depth+1)
		case t != TypeOf(fd):
			err = fmt.Errorf("field %s has the thrift type %d instead of %d", fd.FullName(), t, TypeOf(fd))
		case fd.IsMap():
			err = r.readMap(m, fd, depth+1)
		case fd.IsList():
			err = r.readList(m, fd, depth+1)
		case t == Struct:
			err = r.readStruct(m.Mutable(fd).Message(), depth+1)
		default:
			var v protoreflect.Value
			if v, err = r.value(fd); err == nil {
				m.Set(fd, v)
			}
		}
		if err != nil {
			return err
		}
	}
}

func (r *reader) readList(m protoreflect.Message, fd protoreflect.FieldDescriptor, depth int) error {
	head, err := r.next(1)
	if err != nil {
		return err
	}
	of := Type(head[0])
	n, err := r.size(minSize(of))
	if err != nil || n == 0 {
		return err
	}
	if of != ElementOf(fd) {
		return fmt.Errorf("the elements of %s have the thrift type %d instead of %d", fd.FullName(), of, ElementOf(fd))
	}
	list := m.Mutable(fd).List()
	for range n {
		if of == Struct {
			err = r.readStruct(list.AppendMutable().Message(), depth+1)
		} else {
			var v protoreflect.Value
			if v, err = r.value(fd); err == nil {
				list.Append(v)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *reader) readMap(m protoreflect.Message, fd protoreflect.FieldDescriptor, depth int) error {
	head, err := r.next(2)
	if err != nil {
		return err
	}
	key, value := fd.MapKey(), fd.MapValue()
	kt, vt := Type(head[0]), Type(head[1])
	n, err := r.size(minSize(kt) + minSize(vt))
	if err != nil || n == 0 {
		return err
	}
	if kt != ElementOf(key) || vt != ElementOf(value) {
		return fmt.Errorf("the entries of %s have the thrift types %d and %d instead of %d and %d", fd.FullName(), kt, vt, ElementOf(key), ElementOf(value))
	}
	entries := m.Mutable(fd).Map()
	for range n {
		k, err := r.value(key)
		if err != nil {
			return err
		}
		if vt == Struct {
			err = r.readStruct(entries.Mutable(k.MapKey()).Message(), depth+1)
		} else {
			var v protoreflect.Value
			if v, err = r.value(value); err == nil {
				entries.Set(k.MapKey(), v)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// value reads a value, except a struct, list or map.
func (r *reader) value(fd protoreflect.FieldDescriptor) (v protoreflect.Value, err error) {
	switch ElementOf(fd) {
	case Bool:
		b, err := r.next(1)
		if err != nil {
			return v, err
		}
		return protoreflect.ValueOfBool(b[0] != 0), nil
	case I32:
		u, err := r.u32()
		if fd.Kind() == protoreflect.EnumKind {
			return protoreflect.ValueOfEnum(protoreflect.EnumNumber(int32(u))), err
		}
		return protoreflect.ValueOfInt32(int32(u)), err
	case I64:
		return r.integer(fd)
	case Double:
		u, err := r.u64()
		f := math.Float64frombits(u)
		if fd.Kind() == protoreflect.FloatKind {
			return protoreflect.ValueOfFloat32(float32(f)), err
		}
		return protoreflect.ValueOfFloat64(f), err
	default:
		return r.text(fd)
	}
}

func (r *reader) integer(fd protoreflect.FieldDescriptor) (protoreflect.Value, error) {
	u, err := r.u64()
	switch fd.Kind() {
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		if u > math.MaxUint32 {
			return protoreflect.Value{}, fmt.Errorf("%s is %d; it must be between 0 and %d", fd.FullName(), int64(u), uint32(math.MaxUint32))
		}
		return protoreflect.ValueOfUint32(uint32(u)), err
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return protoreflect.ValueOfUint64(u), err
	default:
		return protoreflect.ValueOfInt64(int64(u)), err
	}
}

func (r *reader) text(fd protoreflect.FieldDescriptor) (protoreflect.Value, error) {
	b, err := r.bytes()
	switch {
	case err != nil:
		return protoreflect.Value{}, err
	case fd.Kind() == protoreflect.BytesKind:
		return protoreflect.ValueOfBytes(append([]byte{}, b...)), nil
	case !utf8.Valid(b):
		return protoreflect.Value{}, fmt.Errorf("the string of %s is not UTF-8", fd.FullName())
	default:
		return protoreflect.ValueOfString(string(b)), nil
	}
}

// fixed returns the size of a value of a type, in bytes, or 0 if the size varies.
func fixed(t Type) int {
	switch t {
	case Bool, i8:
		return 1
	case i16:
		return 2
	case I32:
		return 4
	case Double, I64:
		return 8
	default:
		return 0
	}
}

// minSize returns the size of the smallest value of a type, in bytes.
func minSize(t Type) int {
	switch t {
	case String:
		return 4
	case Map:
		return 6
	case List, set:
		return 5
	default: // the smallest struct has only its end
		return max(fixed(t), 1)
	}
}

// skip skips a value of a field that this build does not know.
func (r *reader) skip(t Type, depth int) error {
	if depth > maxDepth {
		return errDeep
	}
	if n := fixed(t); n > 0 {
		_, err := r.next(n)
		return err
	}
	switch t {
	case String:
		_, err := r.bytes()
		return err
	case Struct:
		for {
			t, _, err := r.field()
			if err != nil || t == stop {
				return err
			}
			if err := r.skip(t, depth+1); err != nil {
				return err
			}
		}
	case List, set:
		head, err := r.next(1)
		if err != nil {
			return err
		}
		return r.skipAll(depth+1, Type(head[0]))
	case Map:
		head, err := r.next(2)
		if err != nil {
			return err
		}
		return r.skipAll(depth+1, Type(head[0]), Type(head[1]))
	default:
		return fmt.Errorf("%d is not a thrift type", t)
	}
}

// skipAll skips the elements of a container. Each element has values of the given types.
func (r *reader) skipAll(depth int, types ...Type) error {
	smallest := 0
	for _, t := range types {
		smallest += minSize(t)
	}
	n, err := r.size(smallest)
	if err != nil {
		return err
	}
	for range n {
		for _, t := range types {
			if err := r.skip(t, depth); err != nil {
				return err
			}
		}
	}
	return nil
}
