// Command protogen generates Go code from .proto files without protoc.
//
// protoc is a C++ program that a fresh machine has not got. This command compiles the files with a
// pure-Go compiler (bufbuild/protocompile) and hands the result to protoc-gen-go, both pinned by
// tools/go.mod, so that the same sources give the same bytes everywhere, offline once the modules
// are cached.
//
//	protogen [-out DIR] ROOT FILE...
//
// FILE is a path below ROOT with forward slashes, for example pkg/events/events.proto; FILE.pb.go
// is written beside it, or at the same path below DIR. `make generate` at the top of the repository
// runs it.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/linker"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

func main() {
	err := run(context.Background(), os.Args[1:], os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "protogen:", err)
		os.Exit(1)
	}
}

// run is main without the process: args are those after the command's name.
func run(ctx context.Context, args []string, stderr io.Writer) error {
	flags := flag.NewFlagSet("protogen", flag.ContinueOnError)
	flags.SetOutput(stderr)
	out := flags.String("out", "", "write below this `directory` instead of ROOT")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() < 2 {
		return errors.New("want ROOT and one FILE or more (see -help)")
	}
	root, names := flags.Arg(0), flags.Args()[1:]
	if *out == "" {
		*out = root
	}

	request, err := compile(ctx, root, names)
	if err != nil {
		return err
	}
	response, err := generate(ctx, request, stderr)
	if err != nil {
		return err
	}
	return write(*out, response)
}

// compile turns the named files into the request that protoc would send to a plugin.
func compile(ctx context.Context, root string, names []string) (*pluginpb.CodeGeneratorRequest, error) {
	compiler := protocompile.Compiler{
		Resolver: protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: []string{root}}),
		// protoc-gen-go copies the comments of the .proto file into the code.
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	files, err := compiler.Compile(ctx, names...)
	if err != nil {
		return nil, fmt.Errorf("compile: %w", err)
	}
	return &pluginpb.CodeGeneratorRequest{
		FileToGenerate: names,
		Parameter:      proto.String("paths=source_relative"),
		ProtoFile:      withImports(files),
	}, nil
}

// withImports lists the files and everything they import, each once and after what it imports, as
// plugins demand.
func withImports(files linker.Files) []*descriptorpb.FileDescriptorProto {
	var list []*descriptorpb.FileDescriptorProto
	seen := map[string]bool{}
	var add func(file protoreflect.FileDescriptor)
	add = func(file protoreflect.FileDescriptor) {
		if seen[file.Path()] {
			return
		}
		seen[file.Path()] = true
		for i := range file.Imports().Len() {
			add(file.Imports().Get(i).FileDescriptor)
		}
		list = append(list, protodesc.ToFileDescriptorProto(file))
	}
	for _, file := range files {
		add(file)
	}
	return list
}

// generate runs protoc-gen-go as protoc would: request on its standard input, response on its
// standard output.
func generate(ctx context.Context, request *pluginpb.CodeGeneratorRequest, stderr io.Writer) (*pluginpb.CodeGeneratorResponse, error) {
	in, err := proto.Marshal(request)
	if err != nil {
		return nil, fmt.Errorf("encode request: %w", err)
	}
	var out bytes.Buffer
	plugin := exec.CommandContext(ctx, "go", "tool", "protoc-gen-go")
	plugin.Stdin, plugin.Stdout, plugin.Stderr = bytes.NewReader(in), &out, stderr
	if err := plugin.Run(); err != nil {
		return nil, fmt.Errorf("run protoc-gen-go: %w", err)
	}
	response := new(pluginpb.CodeGeneratorResponse)
	if err := proto.Unmarshal(out.Bytes(), response); err != nil {
		return nil, fmt.Errorf("decode response of protoc-gen-go: %w", err)
	}
	if response.Error != nil {
		return nil, fmt.Errorf("protoc-gen-go: %s", response.GetError())
	}
	return response, nil
}

// write stores the generated files below dir.
func write(dir string, response *pluginpb.CodeGeneratorResponse) error {
	for _, file := range response.File {
		path := filepath.Join(dir, filepath.FromSlash(file.GetName()))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("write %s: %w", file.GetName(), err)
		}
		if err := os.WriteFile(path, []byte(file.GetContent()), 0o644); err != nil {
			return fmt.Errorf("write %s: %w", file.GetName(), err)
		}
	}
	return nil
}
