package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

// A Package holds the measures of one directory. The command's comment defines them.
type Package struct {
	Path    string   `json:"path"` // from the root of the module, with slashes
	Files   int      `json:"files"`
	Code    int      `json:"code"`
	Longest int      `json:"longest"`
	Tests   int      `json:"tests"`
	Funcs   int      `json:"funcs"`
	Types   int      `json:"types"`
	Values  int      `json:"values"`
	Refs    int      `json:"refs"`
	Up      []string `json:"up"` // "a.go uses b.go"
	Circle  int      `json:"circle"`
}

// load measures every package of the module at root, sorted by path.
func load(root string) ([]Package, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	loaded, err := packages.Load(&packages.Config{Mode: packages.LoadSyntax, Dir: root}, "./...")
	if err != nil {
		return nil, err
	}
	var all []Package
	var failed error
	for _, p := range loaded {
		for _, err := range p.Errors {
			failed = errors.Join(failed, err)
		}
		measured, err := measure(root, p)
		failed = errors.Join(failed, err)
		all = append(all, measured)
	}
	slices.SortFunc(all, func(a, b Package) int { return strings.Compare(a.Path, b.Path) })
	return all, failed
}

func measure(root string, p *packages.Package) (Package, error) {
	dir, err := filepath.Rel(root, p.Dir)
	if err != nil {
		return Package{}, err
	}
	m := Package{Path: filepath.ToSlash(dir), Up: []string{}}
	if err := m.countTests(p.Dir); err != nil {
		return m, err
	}
	var files []*ast.File
	for _, file := range p.Syntax {
		if !ast.IsGenerated(file) {
			files = append(files, file)
		}
	}
	for _, file := range files {
		name := p.Fset.File(file.FileStart).Name()
		source, err := os.ReadFile(name)
		if err != nil {
			return m, err
		}
		lines, err := codeLines(source)
		if err != nil {
			return m, fmt.Errorf("%s: %w", name, err)
		}
		m.Files++
		m.Code += lines
		m.Longest = max(m.Longest, lines)
		m.countNames(file)
	}
	if strings.HasPrefix(m.Path+"/", "internal/testing/") {
		m.Code, m.Tests = 0, m.Tests+m.Code
	}
	m.countReferences(p, files)
	return m, nil
}

func (m *Package) countTests(dir string) error {
	names, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return err
	}
	for _, name := range names {
		source, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		lines, err := codeLines(source)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		m.Tests += lines
	}
	return nil
}

// countNames counts the exported names that a file declares.
func (m *Package) countNames(file *ast.File) {
	for _, decl := range file.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			if decl.Name.IsExported() && (decl.Recv == nil || receiver(decl).IsExported()) {
				m.Funcs++
			}
		case *ast.GenDecl:
			for _, spec := range decl.Specs {
				m.countSpec(spec)
			}
		}
	}
}

func (m *Package) countSpec(spec ast.Spec) {
	switch spec := spec.(type) {
	case *ast.TypeSpec:
		if spec.Name.IsExported() {
			m.Types++
		}
	case *ast.ValueSpec:
		for _, name := range spec.Names {
			if name.IsExported() {
				m.Values++
			}
		}
	}
}

// receiver returns the name of a method's type: T of *T[K].
func receiver(decl *ast.FuncDecl) *ast.Ident {
	expr := decl.Recv.List[0].Type
	for {
		switch e := expr.(type) {
		case *ast.StarExpr:
			expr = e.X
		case *ast.ParenExpr:
			expr = e.X
		case *ast.IndexExpr:
			expr = e.X
		case *ast.IndexListExpr:
			expr = e.X
		case *ast.Ident:
			return e
		default:
			return ast.NewIdent("_") // does not compile, which load reports
		}
	}
}

// countReferences finds which file uses which other, and which of these references run back up.
func (m *Package) countReferences(p *packages.Package, files []*ast.File) {
	// In the order of their names, so that each run finds the same order.
	names := make([]string, len(files))
	number := map[*token.File]int{}
	slices.SortFunc(files, func(a, b *ast.File) int {
		return strings.Compare(p.Fset.File(a.FileStart).Name(), p.Fset.File(b.FileStart).Name())
	})
	uses := make(graph, len(files))
	for i, file := range files {
		at := p.Fset.File(file.FileStart)
		names[i], number[at], uses[i] = filepath.Base(at.Name()), i, map[int]bool{}
	}
	for ident, object := range p.TypesInfo.Uses {
		if object.Pkg() != p.Types || !shared(object) {
			continue
		}
		from, ok := number[p.Fset.File(ident.Pos())]
		to, known := number[p.Fset.File(object.Pos())]
		if ok && known && from != to {
			uses[from][to] = true
		}
	}
	m.Refs, m.Circle = uses.edges(), uses.inside()
	for _, edge := range uses.upward() {
		m.Up = append(m.Up, names[edge[0]]+" uses "+names[edge[1]])
	}
}

// shared reports whether other files can use an object: one of the package's level, a method or a
// field.
func shared(object types.Object) bool {
	switch object := object.(type) {
	case *types.Var:
		return object.IsField() || object.Parent() == object.Pkg().Scope()
	case *types.Func:
		return true
	default:
		return object.Parent() == object.Pkg().Scope()
	}
}
