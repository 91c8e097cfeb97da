package promises

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"

	"github.com/offpath-io/offpath/pkg/events"
)

// Record writes a recording of this build into a directory, which it makes. The working directory is the top of the
// repository.
func Record(ctx context.Context, dir string) error {
	bin, remove, err := Build(ctx, ".")
	if err != nil {
		return err
	}
	defer remove()
	files := make(map[string][]byte)
	if files["redis.txt"], files["redis.json"], err = recordRedis(ctx); err != nil {
		return fmt.Errorf("redis: %w", err)
	}
	if files["events.binpb"], err = recordFormat(); err != nil {
		return fmt.Errorf("format: %w", err)
	}
	subjects, err := recordSubjects(ctx)
	if err != nil {
		return fmt.Errorf("subjects: %w", err)
	}
	files["subjects.txt"] = text(subjects)
	for name, face := range faces {
		list, err := face(ctx, ".", bin)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		files[name] = text(list)
	}
	for _, talk := range talks {
		if files[talk.file], err = lines(talk.make()); err != nil {
			return fmt.Errorf("%s: %w", talk.file, err)
		}
	}
	if err := recordTokens(files); err != nil {
		return fmt.Errorf("tokens: %w", err)
	}
	if err := recordRules(files); err != nil {
		return fmt.Errorf("rules: %w", err)
	}
	return write(dir, files)
}

func text(lines []string) []byte { return []byte(strings.Join(lines, "\n") + "\n") }

func write(dir string, files map[string][]byte) error {
	for name, data := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			return err
		}
		if err := os.WriteFile(path, data, 0o666); err != nil {
			return err
		}
	}
	return nil
}

// lines are a talk's messages, one per line.
func lines(said []Said, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	var lines []byte
	for _, s := range said {
		line, err := json.Marshal(s)
		if err != nil {
			return nil, err
		}
		lines = append(append(lines, line...), '\n')
	}
	return lines, nil
}

// faces are what users see of a build, as lines, from the top of the repository.
var faces = map[string]func(ctx context.Context, root, bin string) ([]string, error){
	"api.txt": API, "flags.txt": Flags, "metrics.txt": Metrics,
}

// talks are what is recorded of what parts say to each other. Those that grow get what is new in a release.
var talks = []struct {
	file  string
	make  func() ([]Said, error)
	grows bool
}{
	{"talk.jsonl", func() ([]Said, error) { return Talk(TalkRules, Hits) }, false},
	{"talk-all.jsonl", func() ([]Said, error) { return Talk(AllRules, AllHits) }, true},
}

// recordFormat is the format of the messages, as a FileDescriptorProto.
func recordFormat() ([]byte, error) {
	file := protodesc.ToFileDescriptorProto(events.File_pkg_events_events_proto)
	return proto.MarshalOptions{Deterministic: true}.Marshal(file)
}
