package promises

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/offpath-io/offpath/pkg/events"
)

// recordings calls f for each recording that has files of this pattern, as a subtest.
func recordings(t *testing.T, pattern string, f func(t *testing.T, files []string)) {
	t.Helper()
	dirs, err := filepath.Glob("testdata/v*")
	if err != nil || len(dirs) == 0 {
		t.Fatalf("no recordings: %v", err)
	}
	found := 0
	for _, dir := range dirs {
		files, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		if len(files) > 0 {
			found++
			t.Run(filepath.Base(dir), func(t *testing.T) { f(t, files) })
		}
	}
	if found == 0 {
		t.Fatalf("no recording has %s", pattern)
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func readTalk(t *testing.T, path string) (said []Said) {
	t.Helper()
	for line := range bytes.Lines(read(t, path)) {
		var s Said
		if err := json.Unmarshal(line, &s); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		said = append(said, s)
	}
	return said
}

// This build takes every message that a release has said to say what that release meant.
func TestEveryMessageIsUnderstood(t *testing.T) {
	recordings(t, "talk*.jsonl", func(t *testing.T, files []string) {
		heard := make(map[events.Kind]bool)
		for _, file := range files {
			for i, s := range readTalk(t, file) {
				kind := kindOf(s.Kind)
				heard[kind] = true
				got, err := Decode(kind, s.Bytes)
				if err != nil {
					t.Fatalf("%s:%d: %s: %v", file, i+1, s.Kind, err)
				}
				want := got.ProtoReflect().New().Interface()
				if err := protojson.Unmarshal(s.Meaning, want); err != nil {
					t.Fatalf("%s:%d: %s: %v", file, i+1, s.Kind, err)
				}
				if !proto.Equal(got, want) {
					t.Errorf("%s:%d: %s\nsays  %v\nmeant %v", file, i+1, s.Kind, got, want)
				}
			}
		}
		for _, kind := range kinds {
			if !heard[kind] {
				t.Errorf("no %v was recorded", kind)
			}
		}
	})
}

// Tokens that clients hold while a fleet is upgraded say what they said.
func TestEveryTokenIsRead(t *testing.T) {
	recordings(t, "tokens.txt", func(t *testing.T, files []string) {
		for _, line := range linesOf(string(read(t, files[0]))) {
			token, want, _ := strings.Cut(line, " ")
			got, err := events.DecodeToken(token)
			if err != nil {
				t.Fatalf("%s: %v", token, err)
			}
			meant := new(events.Token)
			if err := protojson.Unmarshal([]byte(want), meant); err != nil || !proto.Equal(got, meant) || len(meant.Charges) == 0 {
				t.Errorf("%s\nsays  %v\nmeant %v (%v)", token, got, meant, err)
			}
		}
	})
}

// An aggregator of this build answers the checkers of a release as one of that release did, and counts as many hits.
func TestCheckersOfReleasesAreAnswered(t *testing.T) {
	recordings(t, "talk*.jsonl", func(t *testing.T, files []string) {
		for _, file := range files {
			said := readTalk(t, file)
			heard, ledger, err := Replay(said)
			if err != nil {
				t.Fatal(err)
			}
			got, want := answers(t, heard), answers(t, said)
			for id, was := range want {
				if is := got[id]; is == nil || !proto.Equal(is, was) {
					t.Errorf("%s: the answer %s\nis  %v\nwas %v", file, id, is, was)
				}
			}
			if len(got) != len(want) || len(got) == 0 {
				t.Errorf("%s: %d answers, want %d", file, len(got), len(want))
			}
			if ledger["per-user"].Counted == 0 {
				t.Errorf("%s: nothing was counted: %v", file, ledger)
			}
		}
	})
}

// answers are those in a talk, by whose they are and to which question. Of each only what it tells: not when it was
// given, nor how the store numbers its states.
func answers(t *testing.T, said []Said) map[string]events.Message {
	t.Helper()
	list := make(map[string]events.Message)
	for _, s := range said {
		m, err := Decode(kindOf(s.Kind), s.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		var question any
		switch m := m.(type) {
		case *events.Refresh:
			question, m.Generation, m.Version = fmt.Sprint(m.Shard, m.Sequence, m.Repeated), 0, 0
		case *events.Grant:
			question, m.Generation, m.Version = fmt.Sprint(m.Shard, m.Sequence), 0, 0
		case *events.Welcome:
			question, m.Time = m.Sent, 0
		default:
			continue
		}
		list[fmt.Sprintf("%s to %s, %v", s.Kind, s.From, question)] = m
	}
	return list
}

// formats calls f for each recording's format of messages.
func formats(t *testing.T, f func(t *testing.T, old protoreflect.FileDescriptor)) {
	recordings(t, "events.binpb", func(t *testing.T, files []string) {
		file := new(descriptorpb.FileDescriptorProto)
		if err := proto.Unmarshal(read(t, files[0]), file); err != nil {
			t.Fatal(err)
		}
		old, err := protodesc.NewFile(file, nil)
		if err != nil {
			t.Fatal(err)
		}
		f(t, old)
	})
}

// A release reads what this build says: by rules that it knows, nothing is said that it does not know of; by newer
// ones, it keeps what it does not know, and reads the rest.
func TestReleasesReadThisBuild(t *testing.T) {
	for _, talk := range talks {
		said, err := talk.make()
		if err != nil {
			t.Fatal(err)
		}
		t.Run(talk.file, func(t *testing.T) {
			formats(t, func(t *testing.T, old protoreflect.FileDescriptor) {
				heard := make(map[string]bool)
				for i, s := range said {
					heard[s.Kind] = true
					if n := readByOld(t, old, s); n > 0 && !talk.grows {
						t.Errorf("message %d, %s: %d bytes are unknown to the release: %s", i, s.Kind, n, s.Meaning)
					}
				}
				if len(heard) != len(kinds) {
					t.Errorf("the talk had only %v", slices.Sorted(maps.Keys(heard)))
				}
			})
		})
	}
}

// readByOld reads a message by another format, and returns how many bytes of it that does not know.
func readByOld(t *testing.T, old protoreflect.FileDescriptor, s Said) (unknown int) {
	t.Helper()
	want, err := Decode(kindOf(s.Kind), s.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	descriptor := old.Messages().ByName(want.ProtoReflect().Descriptor().Name())
	if descriptor == nil {
		t.Fatalf("the release knows of no %s", s.Kind)
	}
	m := dynamicpb.NewMessage(descriptor)
	if err := proto.Unmarshal(s.Bytes, m); err != nil {
		t.Fatalf("%s: %v", s.Kind, err)
	}
	data, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := Decode(kindOf(s.Kind), data); err != nil || !proto.Equal(got, want) {
		t.Errorf("%s: what the release has read is %v, %v; was said: %v", s.Kind, got, err, want)
	}
	return unknownIn(m)
}

// unknownIn is how many bytes of unknown fields there are in a message, and in those that it holds.
func unknownIn(m protoreflect.Message) int {
	n := len(m.GetUnknown())
	m.Range(func(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case field.Message() == nil:
		case field.IsList():
			for i := range v.List().Len() {
				n += unknownIn(v.List().Get(i).Message())
			}
		default:
			n += unknownIn(v.Message())
		}
		return true
	})
	return n
}
