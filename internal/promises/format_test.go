package promises

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/offpath-io/offpath/pkg/events"
)

// The format only grows: no field is gone, renumbered or of another type, and no number has another meaning.
func TestFormatOnlyGrows(t *testing.T) {
	formats(t, func(t *testing.T, old protoreflect.FileDescriptor) {
		for _, change := range broken(old, events.File_pkg_events_events_proto) {
			t.Error(change)
		}
	})
}

// broken lists what a later format does not keep of an earlier one.
func broken(old, today protoreflect.FileDescriptor) (list []string) {
	for i := range old.Messages().Len() {
		m := old.Messages().Get(i)
		now := today.Messages().ByName(m.Name())
		if now == nil {
			list = append(list, fmt.Sprintf("message %s is gone", m.Name()))
			continue
		}
		for j := range m.Fields().Len() {
			was, is := m.Fields().Get(j), now.Fields().ByNumber(m.Fields().Get(j).Number())
			if is == nil || fieldText(was) != fieldText(is) {
				list = append(list, fmt.Sprintf("%s: %s is %s", m.Name(), fieldText(was), fieldText(is)))
			}
		}
	}
	for i := range old.Enums().Len() {
		e := old.Enums().Get(i)
		now := today.Enums().ByName(e.Name())
		for j := range e.Values().Len() {
			v := e.Values().Get(j)
			if now == nil || now.Values().ByNumber(v.Number()) == nil || now.Values().ByNumber(v.Number()).Name() != v.Name() {
				list = append(list, fmt.Sprintf("%s: %d is not %s", e.Name(), v.Number(), v.Name()))
			}
		}
	}
	return list
}

func fieldText(f protoreflect.FieldDescriptor) string {
	if f == nil {
		return "gone"
	}
	text := fmt.Sprintf("%d %s %s %s", f.Number(), f.Name(), f.Cardinality(), f.Kind())
	if f.Message() != nil {
		text += " " + string(f.Message().Name())
	}
	if f.Enum() != nil {
		text += " " + string(f.Enum().Name())
	}
	return fmt.Sprint(text, f.IsPacked(), f.HasPresence())
}

func TestBrokenFindsWhatIsNotKept(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(f *descriptorpb.FileDescriptorProto)
		want   string
	}{
		{"nothing", func(*descriptorpb.FileDescriptorProto) {}, ""},
		{"a new field", func(f *descriptorpb.FileDescriptorProto) {
			added := proto.Clone(message(f, "Hello").Field[0]).(*descriptorpb.FieldDescriptorProto)
			added.Name, added.Number = proto.String("added"), proto.Int32(99)
			message(f, "Hello").Field = append(message(f, "Hello").Field, added)
		}, ""},
		{"a new message", func(f *descriptorpb.FileDescriptorProto) {
			f.MessageType = append(f.MessageType, &descriptorpb.DescriptorProto{Name: proto.String("New")})
		}, ""},
		{"a message is gone", func(f *descriptorpb.FileDescriptorProto) { message(f, "Hello").Name = proto.String("Other") }, "Hello"},
		{"a field is gone", func(f *descriptorpb.FileDescriptorProto) {
			message(f, "Hello").Field = message(f, "Hello").Field[:2]
		}, "Hello: 3 leaving"},
		{"another number", func(f *descriptorpb.FileDescriptorProto) { message(f, "Hello").Field[2].Number = proto.Int32(4) }, "3 leaving"},
		{"another name", func(f *descriptorpb.FileDescriptorProto) {
			message(f, "Hello").Field[2].Name = proto.String("left")
			message(f, "Hello").Field[2].JsonName = nil
		}, "3 leaving"},
		{"another type", func(f *descriptorpb.FileDescriptorProto) {
			message(f, "Hello").Field[0].Type = descriptorpb.FieldDescriptorProto_TYPE_UINT64.Enum()
		}, "1 epoch"},
		{"many for one", func(f *descriptorpb.FileDescriptorProto) {
			message(f, "Hello").Field[1].Label = descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum()
		}, "2 sent"},
		{"another meaning of a value", func(f *descriptorpb.FileDescriptorProto) { f.EnumType[0].Value[1].Name = proto.String("LOG") }, "FIXED_WINDOW"},
		{"a value is gone", func(f *descriptorpb.FileDescriptorProto) { f.EnumType[0].Value = f.EnumType[0].Value[:1] }, "FIXED_WINDOW"},
	} {
		t.Run(test.name, func(t *testing.T) {
			file := protodesc.ToFileDescriptorProto(events.File_pkg_events_events_proto)
			test.change(file)
			today, err := protodesc.NewFile(file, nil)
			if err != nil {
				t.Fatal(err)
			}
			got := strings.Join(broken(events.File_pkg_events_events_proto, today), "\n")
			if (test.want == "") != (got == "") || !strings.Contains(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func message(f *descriptorpb.FileDescriptorProto, name string) *descriptorpb.DescriptorProto {
	for _, m := range f.MessageType {
		if m.GetName() == name {
			return m
		}
	}
	panic("no message " + name)
}
