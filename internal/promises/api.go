package promises

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
)

// API lists what the packages below pkg export: functions and methods by their types, types with their exported fields and
// methods, variables and constants. Root is the top of the repository.
func API(_ context.Context, root, _ string) (lines []string, err error) {
	top := filepath.Join(root, "pkg")
	err = filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			if name := entry.Name(); name == "internal" || name == "testdata" || name == "examples" {
				return filepath.SkipDir
			}
			return nil
		case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		if ast.FileExports(file) {
			dir, err := filepath.Rel(root, filepath.Dir(path))
			if err != nil {
				return err
			}
			for _, line := range exports(file) {
				lines = append(lines, filepath.ToSlash(dir)+": "+line)
			}
		}
		return nil
	})
	slices.Sort(lines)
	return slices.Compact(lines), err // a name can be there once for each system
}

// exports lists what a file declares, of which only what is exported is left.
func exports(file *ast.File) (lines []string) {
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			receiver := ""
			if d.Recv != nil {
				of := types.ExprString(d.Recv.List[0].Type)
				if !ast.IsExported(strings.TrimPrefix(of, "*")) {
					continue
				}
				receiver = "(" + of + ") "
			}
			lines = append(lines, "func "+receiver+d.Name.Name+signature(d.Type))
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				lines = append(lines, declared(d.Tok, spec)...)
			}
		}
	}
	return lines
}

func declared(what token.Token, spec ast.Spec) (lines []string) {
	switch spec := spec.(type) {
	case *ast.ValueSpec:
		kind := ""
		if spec.Type != nil {
			kind = " " + types.ExprString(spec.Type)
		}
		for _, name := range spec.Names {
			if name.IsExported() {
				lines = append(lines, what.String()+" "+name.Name+kind)
			}
		}
	case *ast.TypeSpec:
		name := spec.Name.Name
		switch t := spec.Type.(type) {
		case *ast.StructType:
			lines = append(lines, "type "+name+" struct")
			lines = append(lines, members(name, t.Fields)...)
		case *ast.InterfaceType:
			lines = append(lines, "type "+name+" interface")
			lines = append(lines, members(name, t.Methods)...)
		default:
			lines = append(lines, "type "+name+" "+types.ExprString(t))
		}
	}
	return lines
}

// members lists a struct's fields or an interface's methods.
func members(of string, list *ast.FieldList) (lines []string) {
	for _, field := range list.List {
		text := " " + types.ExprString(field.Type)
		if f, ok := field.Type.(*ast.FuncType); ok && len(field.Names) == 1 {
			text = signature(f)
		}
		if len(field.Names) == 0 {
			lines = append(lines, of+" has"+text)
		}
		for _, name := range field.Names {
			lines = append(lines, of+"."+name.Name+text)
		}
	}
	return lines
}

// signature is a function's, without the names of what it takes and returns.
func signature(f *ast.FuncType) string {
	result := ""
	if f.Results != nil {
		result = " (" + typesOf(f.Results) + ")"
	}
	generic := ""
	if f.TypeParams != nil {
		generic = "[" + typesOf(f.TypeParams) + "]"
	}
	return fmt.Sprintf("%s(%s)%s", generic, typesOf(f.Params), result)
}

func typesOf(list *ast.FieldList) string {
	var all []string
	for _, field := range list.List {
		for range max(len(field.Names), 1) {
			all = append(all, types.ExprString(field.Type))
		}
	}
	return strings.Join(all, ", ")
}
