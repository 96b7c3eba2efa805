// Package thriftwire encodes and decodes protobuf messages as structs of Thrift's binary protocol.
// So a service with protobuf messages can serve callers whose code was generated from the Thrift
// twin of its protos, without a second set of messages.
//
// The twin has a struct for each message, with the same field numbers and names. TypeOf maps the
// types: uint32 and uint64 are i64 (a uint64 above the maximum of i64 is negative), float is
// double, bytes is binary, an enum is i32, and a field of a oneof is an optional field. Fields
// without a value are not encoded, and unknown fields are skipped.
package thriftwire

import (
	"encoding/binary"
	"fmt"
	"math"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// A Type is the code of a type in Thrift's binary protocol.
type Type byte

// The types.
const (
	stop   Type = 0
	Bool   Type = 2
	i8     Type = 3
	Double Type = 4
	i16    Type = 6
	I32    Type = 8
	I64    Type = 10
	String Type = 11 // also binary
	Struct Type = 12
	Map    Type = 13
	set    Type = 14
	List   Type = 15
)

// TypeOf returns the Thrift type of a field in the twin.
func TypeOf(fd protoreflect.FieldDescriptor) Type {
	switch {
	case fd.IsMap():
		return Map
	case fd.IsList():
		return List
	default:
		return ElementOf(fd)
	}
}

// ElementOf returns the Thrift type of the elements of a list, or of a field that is neither a list
// nor a map.
func ElementOf(fd protoreflect.FieldDescriptor) Type {
	switch fd.Kind() {
	case protoreflect.BoolKind:
		return Bool
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind, protoreflect.EnumKind:
		return I32
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		return Double
	case protoreflect.StringKind, protoreflect.BytesKind:
		return String
	case protoreflect.MessageKind, protoreflect.GroupKind:
		return Struct
	default: // uint32, and the 64-bit integers
		return I64
	}
}

// Append appends the struct of m to b. It fails if a string of m is not UTF-8.
func Append(b []byte, m proto.Message) ([]byte, error) {
	return appendStruct(b, m.ProtoReflect())
}

func appendStruct(b []byte, m protoreflect.Message) (_ []byte, err error) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		if !m.Has(fd) {
			continue
		}
		b = AppendField(b, TypeOf(fd), int16(fd.Number()))
		v := m.Get(fd)
		switch {
		case fd.IsMap():
			b, err = appendMap(b, fd, v.Map())
		case fd.IsList():
			b, err = appendList(b, fd, v.List())
		default:
			b, err = appendValue(b, fd, v)
		}
		if err != nil {
			return b, err
		}
	}
	return append(b, byte(stop)), nil
}

// AppendField appends the header of a field, which the field's value must follow.
func AppendField(b []byte, t Type, number int16) []byte {
	return binary.BigEndian.AppendUint16(append(b, byte(t)), uint16(number))
}

// AppendStop appends the end of a struct.
func AppendStop(b []byte) []byte { return append(b, byte(stop)) }

func appendList(b []byte, fd protoreflect.FieldDescriptor, list protoreflect.List) (_ []byte, err error) {
	b = appendSize(append(b, byte(ElementOf(fd))), list.Len())
	for i := range list.Len() {
		if b, err = appendValue(b, fd, list.Get(i)); err != nil {
			return b, err
		}
	}
	return b, nil
}

func appendMap(b []byte, fd protoreflect.FieldDescriptor, entries protoreflect.Map) (_ []byte, err error) {
	key, value := fd.MapKey(), fd.MapValue()
	b = appendSize(append(b, byte(ElementOf(key)), byte(ElementOf(value))), entries.Len())
	entries.Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
		if b, err = appendValue(b, key, k.Value()); err == nil {
			b, err = appendValue(b, value, v)
		}
		return err == nil
	})
	return b, err
}

func appendValue(b []byte, fd protoreflect.FieldDescriptor, v protoreflect.Value) ([]byte, error) {
	switch fd.Kind() {
	case protoreflect.BoolKind:
		if v.Bool() {
			return append(b, 1), nil
		}
		return append(b, 0), nil
	case protoreflect.EnumKind:
		return binary.BigEndian.AppendUint32(b, uint32(v.Enum())), nil
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return binary.BigEndian.AppendUint32(b, uint32(v.Int())), nil
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return binary.BigEndian.AppendUint64(b, uint64(v.Int())), nil
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind, protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return binary.BigEndian.AppendUint64(b, v.Uint()), nil
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		return binary.BigEndian.AppendUint64(b, math.Float64bits(v.Float())), nil
	case protoreflect.StringKind:
		if !utf8.ValidString(v.String()) {
			return b, fmt.Errorf("the string of %s is not UTF-8", fd.FullName())
		}
		return append(appendSize(b, len(v.String())), v.String()...), nil
	case protoreflect.BytesKind:
		return append(appendSize(b, len(v.Bytes())), v.Bytes()...), nil
	default:
		return appendStruct(b, v.Message())
	}
}

func appendSize(b []byte, n int) []byte { return binary.BigEndian.AppendUint32(b, uint32(n)) }
