// Command twin is a plugin of protoc and buf that writes Thrift twins of protos: structs, enums and
// services with the same names and numbers. Package thriftwire defines how types correspond. The
// parameter root=FILE names a proto; its twin and those of all protos that it imports are written.
package main

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"google.golang.org/protobuf/compiler/protogen"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/pluginpb"
)

func main() {
	var root string
	protogen.Options{ParamFunc: func(name, value string) error {
		if name != "root" {
			return fmt.Errorf("unknown parameter %s", name)
		}
		root = value
		return nil
	}}.Run(func(p *protogen.Plugin) error {
		p.SupportedFeatures = uint64(pluginpb.CodeGeneratorResponse_FEATURE_PROTO3_OPTIONAL)
		if p.FilesByPath[root] == nil {
			return fmt.Errorf("there is no proto %q: set root", root)
		}
		return write(p, root, map[string]bool{})
	})
}

// write writes the twins of a proto and of all protos that it imports, except those in done.
func write(p *protogen.Plugin, proto string, done map[string]bool) error {
	if done[proto] {
		return nil
	}
	done[proto] = true
	f := p.FilesByPath[proto]
	imports := f.Desc.Imports()
	for i := range imports.Len() {
		if err := write(p, imports.Get(i).Path(), done); err != nil {
			return err
		}
	}
	t := &twin{GeneratedFile: p.NewGeneratedFile(base(f.Desc)+".thrift", ""), file: f.Desc}
	return t.write(f)
}

// base is the name of a twin without its suffix, by which other twins refer to it.
func base(f protoreflect.FileDescriptor) string {
	return strings.TrimSuffix(path.Base(f.Path()), ".proto")
}

// A twin is a Thrift file.
type twin struct {
	*protogen.GeneratedFile
	file protoreflect.FileDescriptor
}

func (t *twin) write(f *protogen.File) error {
	t.P("// Made of ", f.Desc.Path(), " by scripts/gen. Do not edit.")
	t.P("namespace go ", f.GoPackageName)
	imports := f.Desc.Imports()
	for i := range imports.Len() {
		if i == 0 {
			t.P()
		}
		t.P(`include "`, base(imports.Get(i)), `.thrift"`)
	}
	for _, e := range f.Enums {
		t.enum(e)
	}
	for _, m := range f.Messages {
		if err := t.message(m); err != nil {
			return err
		}
	}
	for _, s := range f.Services {
		t.service(s)
	}
	return nil
}

// comment writes a comment in front of a declaration.
func (t *twin) comment(indent string, c protogen.Comments) {
	text := strings.TrimSuffix(string(c), "\n")
	if text == "" {
		return
	}
	for line := range strings.SplitSeq(text, "\n") {
		t.P(strings.TrimRight(indent+"//"+line, " "))
	}
}

func (t *twin) enum(e *protogen.Enum) {
	t.P()
	t.comment("", e.Comments.Leading)
	t.P("enum ", e.Desc.Name(), " {")
	for _, v := range e.Values {
		t.comment("  ", v.Comments.Leading)
		t.P("  ", v.Desc.Name(), " = ", v.Desc.Number())
	}
	t.P("}")
}

func (t *twin) message(m *protogen.Message) error {
	nested := len(m.Enums)
	for _, inner := range m.Messages {
		if !inner.Desc.IsMapEntry() {
			nested++
		}
	}
	if nested > 0 {
		return errors.New("twin: Thrift has no nested types: move those of " + string(m.Desc.FullName()) + " out")
	}
	t.P()
	if !strings.HasPrefix(string(m.Desc.FullName()), "google.") { // google's comments are too long
		t.comment("", m.Comments.Leading)
	}
	t.P("struct ", m.Desc.Name(), " {")
	for _, f := range m.Fields {
		if !strings.HasPrefix(string(m.Desc.FullName()), "google.") {
			t.comment("  ", f.Comments.Leading)
		}
		t.P("  ", f.Desc.Number(), ": ", requiredness(f.Desc), t.typeOf(f.Desc), " ", f.Desc.Name())
	}
	t.P("}")
	return nil
}

// requiredness returns optional for a field that can be absent. Other fields have the default
// requiredness: their zero value means absent.
func requiredness(f protoreflect.FieldDescriptor) string {
	if f.HasPresence() {
		return "optional "
	}
	return ""
}

func (t *twin) typeOf(f protoreflect.FieldDescriptor) string {
	switch {
	case f.IsMap():
		return "map<" + t.element(f.MapKey()) + ", " + t.element(f.MapValue()) + ">"
	case f.IsList():
		return "list<" + t.element(f) + ">"
	default:
		return t.element(f)
	}
}

// element returns the type of a field, or of the elements of a list.
func (t *twin) element(f protoreflect.FieldDescriptor) string {
	switch f.Kind() {
	case protoreflect.BoolKind:
		return "bool"
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return "i32"
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		return "double"
	case protoreflect.StringKind:
		return "string"
	case protoreflect.BytesKind:
		return "binary"
	case protoreflect.EnumKind:
		return t.name(f.Enum())
	case protoreflect.MessageKind, protoreflect.GroupKind:
		return t.name(f.Message())
	default:
		return "i64"
	}
}

// name returns the name by which this file refers to a type.
func (t *twin) name(d protoreflect.Descriptor) string {
	if d.ParentFile().Path() == t.file.Path() {
		return string(d.Name())
	}
	return base(d.ParentFile()) + "." + string(d.Name())
}

func (t *twin) service(s *protogen.Service) {
	t.P()
	t.comment("", s.Comments.Leading)
	t.P("service ", s.Desc.Name(), " {")
	for _, m := range s.Methods {
		t.comment("  ", m.Comments.Leading)
		mode := ""
		switch server, client := m.Desc.IsStreamingServer(), m.Desc.IsStreamingClient(); {
		case server && client:
			mode = ` (streaming.mode="bidirectional")`
		case server:
			mode = ` (streaming.mode="server")`
		case client:
			mode = ` (streaming.mode="client")`
		}
		t.P("  ", t.name(m.Output.Desc), " ", m.Desc.Name(), "(1: ", t.name(m.Input.Desc), " request)", mode)
	}
	t.P("}")
}
