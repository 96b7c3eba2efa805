package thriftwire_test

import (
	"path"
	"strings"
	"testing"

	"github.com/cloudwego/thriftgo/parser"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/pkg/rpc/thriftwire"
)

const twins = "../../../idl/thrift"

var protos = []protoreflect.FileDescriptor{
	chatv1.File_whence_chat_v1_chat_proto,
	llmv1.File_whence_llm_v1_llm_proto,
	streamv1.File_whence_stream_v1_stream_proto,
	timestamppb.File_google_protobuf_timestamp_proto,
	durationpb.File_google_protobuf_duration_proto,
}

// TestTwinsAreEqualToTheProtos reads the Thrift files, which scripts/gen makes, with Kitex's
// parser.
func TestTwinsAreEqualToTheProtos(t *testing.T) {
	for _, proto := range protos {
		name := strings.TrimSuffix(path.Base(proto.Path()), ".proto") + ".thrift"
		twin, err := parser.ParseFile(path.Join(twins, name), nil, false)
		if err != nil {
			t.Fatal(err)
		}
		sameEnums(t, proto.Enums(), twin)
		sameMessages(t, proto, twin)
		sameServices(t, proto.Services(), twin)
	}
}

func sameEnums(t *testing.T, enums protoreflect.EnumDescriptors, twin *parser.Thrift) {
	t.Helper()
	if len(twin.Enums) != enums.Len() {
		t.Errorf("%s has %d enums, the proto %d", twin.Filename, len(twin.Enums), enums.Len())
	}
	for i := range enums.Len() {
		e := enums.Get(i)
		other, ok := twin.GetEnum(string(e.Name()))
		if !ok || len(other.Values) != e.Values().Len() {
			t.Errorf("%s: enum %s is missing, or has other values", twin.Filename, e.Name())
			continue
		}
		for _, v := range other.Values {
			if same := e.Values().ByName(protoreflect.Name(v.Name)); same == nil || int64(same.Number()) != v.Value {
				t.Errorf("%s: %s.%s is %d, unlike in the proto", twin.Filename, e.Name(), v.Name, v.Value)
			}
		}
	}
}

func sameMessages(t *testing.T, proto protoreflect.FileDescriptor, twin *parser.Thrift) {
	t.Helper()
	messages := proto.Messages()
	if len(twin.Structs) != messages.Len() || len(twin.Unions)+len(twin.Exceptions) > 0 {
		t.Errorf("%s has %d structs, the proto has %d messages", twin.Filename, len(twin.Structs), messages.Len())
	}
	for _, s := range twin.Structs {
		m := messages.ByName(protoreflect.Name(s.Name))
		if m == nil || m.Fields().Len() != len(s.Fields) {
			t.Errorf("%s: struct %s has another number of fields than the message", twin.Filename, s.Name)
			continue
		}
		for _, f := range s.Fields {
			fd := m.Fields().ByNumber(protoreflect.FieldNumber(f.ID))
			if fd == nil || string(fd.Name()) != f.Name {
				t.Errorf("%s: %s.%s is not a field of the message with the number %d", twin.Filename, s.Name, f.Name, f.ID)
				continue
			}
			if got, want := f.Type.String(), typeIn(proto, fd); got != want {
				t.Errorf("%s: %s.%s is a %s; it must be a %s", twin.Filename, s.Name, f.Name, got, want)
			}
			if optional := f.Requiredness == parser.FieldType_Optional; optional != fd.HasPresence() || f.Requiredness == parser.FieldType_Required {
				t.Errorf("%s: %s.%s is optional: %v", twin.Filename, s.Name, f.Name, optional)
			}
		}
	}
}

// typeIn returns the type of a field as a Thrift file writes it.
func typeIn(in protoreflect.FileDescriptor, fd protoreflect.FieldDescriptor) string {
	switch thriftwire.TypeOf(fd) {
	case thriftwire.Map:
		return "map<" + elementIn(in, fd.MapKey()) + "," + elementIn(in, fd.MapValue()) + ">"
	case thriftwire.List:
		return "list<" + elementIn(in, fd) + ">"
	default:
		return elementIn(in, fd)
	}
}

func elementIn(in protoreflect.FileDescriptor, fd protoreflect.FieldDescriptor) string {
	var named protoreflect.Descriptor
	switch {
	case fd.Enum() != nil:
		named = fd.Enum()
	case fd.Message() != nil:
		named = fd.Message()
	case fd.Kind() == protoreflect.BytesKind:
		return "binary"
	default:
		return map[thriftwire.Type]string{
			thriftwire.Bool: "bool", thriftwire.I32: "i32", thriftwire.I64: "i64", thriftwire.Double: "double", thriftwire.String: "string",
		}[thriftwire.ElementOf(fd)]
	}
	if named.ParentFile() == in {
		return string(named.Name())
	}
	return strings.TrimSuffix(path.Base(named.ParentFile().Path()), ".proto") + "." + string(named.Name())
}

func sameServices(t *testing.T, services protoreflect.ServiceDescriptors, twin *parser.Thrift) {
	t.Helper()
	if len(twin.Services) != services.Len() {
		t.Errorf("%s has %d services, the proto %d", twin.Filename, len(twin.Services), services.Len())
	}
	for _, s := range twin.Services {
		other := services.ByName(protoreflect.Name(s.Name))
		if other == nil || other.Methods().Len() != len(s.Functions) {
			t.Errorf("%s: service %s has other methods than in the proto", twin.Filename, s.Name)
			continue
		}
		for _, f := range s.Functions {
			m := other.Methods().ByName(protoreflect.Name(f.Name))
			if m == nil || len(f.Arguments) != 1 || f.Arguments[0].ID != 1 || f.Arguments[0].Type.String() != string(m.Input().Name()) || f.FunctionType.String() != string(m.Output().Name()) {
				t.Errorf("%s: %s.%s has other messages than in the proto", twin.Filename, s.Name, f.Name)
				continue
			}
			var mode string
			if modes := f.Annotations.Get("streaming.mode"); len(modes) == 1 {
				mode = modes[0]
			}
			if want := modeOf(m); mode != want {
				t.Errorf("%s: the streaming mode of %s.%s is %q; it must be %q", twin.Filename, s.Name, f.Name, mode, want)
			}
		}
	}
}

func modeOf(m protoreflect.MethodDescriptor) string {
	switch {
	case m.IsStreamingClient() && m.IsStreamingServer():
		return "bidirectional"
	case m.IsStreamingClient():
		return "client"
	case m.IsStreamingServer():
		return "server"
	default:
		return ""
	}
}
