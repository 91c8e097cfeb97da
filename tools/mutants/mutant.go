package main

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// A mutant is one change of one place.
type mutant struct {
	file     string // relative to the module's root
	function string // Name, or Type.Name of a method
	kind     string // a name of kinds
	source   string // the changed text, on one line
	nth      int    // which of the function's places with this kind and text, from 1
}

const separator = " | "

func (m mutant) String() string {
	return strings.Join([]string{m.file, m.function, m.kind, strconv.Itoa(m.nth), m.source}, separator)
}

func parseMutant(line string) (mutant, error) {
	fields := strings.SplitN(line, separator, 5)
	if len(fields) != 5 {
		return mutant{}, fmt.Errorf("%q: want file, function, kind, number and text", line)
	}
	nth, err := strconv.Atoi(fields[3])
	if err != nil || nth < 1 {
		return mutant{}, fmt.Errorf("%q is no number of a place", fields[3])
	}
	return mutant{file: fields[0], function: fields[1], kind: fields[2], nth: nth, source: fields[4]}, nil
}

// apply returns the whole text of the file with the change.
func (m mutant) apply(root string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(root, m.file))
	if err != nil {
		return nil, err
	}
	all, err := placesOf(m.file, text)
	if err != nil {
		return nil, err
	}
	for _, p := range all {
		if p.mutant == m {
			return p.change(text), nil
		}
	}
	return nil, fmt.Errorf("%s has no such place any more: move or replace its line in the list", m.function)
}

// A place can be changed: the text from one offset of the file to another becomes something else.
type place struct {
	mutant
	from, to int
	with     string
}

func (p place) change(text []byte) []byte {
	return append(append(append([]byte(nil), text[:p.from]...), p.with...), text[p.to:]...)
}

// turned is what each comparison and operator becomes: its neighbour, which is what people mistake
// it for.
var turned = map[token.Token]token.Token{
	token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR,
	token.EQL: token.NEQ, token.NEQ: token.EQL,
	token.ADD: token.SUB, token.SUB: token.ADD, token.MUL: token.ADD, token.QUO: token.MUL,
	token.LAND: token.LOR, token.LOR: token.LAND,
	token.ADD_ASSIGN: token.SUB_ASSIGN, token.SUB_ASSIGN: token.ADD_ASSIGN, token.INC: token.DEC, token.DEC: token.INC,
}

// kindOf names the change of an operator.
func kindOf(op token.Token) string {
	switch op {
	case token.LSS, token.LEQ, token.GTR, token.GEQ, token.EQL, token.NEQ:
		return "comparison"
	case token.LAND, token.LOR:
		return "logic"
	}
	return "sign"
}

// placesOf finds every place of a file, in the file's order.
func placesOf(name string, text []byte) ([]place, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	f := finder{text: text, fset: fset, file: name, count: map[mutant]int{}}
	for _, declared := range file.Decls {
		if function, ok := declared.(*ast.FuncDecl); ok && function.Body != nil {
			f.function = nameOf(function)
			ast.Inspect(function.Body, f.look)
		}
	}
	return f.places, nil
}

func nameOf(function *ast.FuncDecl) string {
	if function.Recv == nil {
		return function.Name.Name
	}
	receiver := function.Recv.List[0].Type
	if star, ok := receiver.(*ast.StarExpr); ok {
		receiver = star.X
	}
	if generic, ok := receiver.(*ast.IndexExpr); ok {
		receiver = generic.X
	}
	return receiver.(*ast.Ident).Name + "." + function.Name.Name
}

// A finder collects the places of one file.
type finder struct {
	text     []byte
	fset     *token.FileSet
	file     string
	function string
	places   []place
	count    map[mutant]int
}

func (f *finder) look(node ast.Node) bool {
	switch node := node.(type) {
	case *ast.BinaryExpr:
		if to, ok := turned[node.Op]; ok {
			f.add(kindOf(node.Op), node, f.at(node.OpPos), len(node.Op.String()), to.String())
		}
	case *ast.BasicLit:
		if n, err := strconv.ParseInt(node.Value, 10, 64); node.Kind == token.INT && err == nil {
			f.add("off by one", node, f.at(node.Pos()), len(node.Value), strconv.FormatInt(n+1, 10))
		}
	case *ast.UnaryExpr:
		if node.Op == token.NOT || node.Op == token.SUB {
			f.add("sign", node, f.at(node.OpPos), 1, "")
		}
	case *ast.IncDecStmt:
		f.add("sign", node, f.at(node.TokPos), 2, turned[node.Tok].String())
	case *ast.AssignStmt:
		if to, ok := turned[node.Tok]; ok {
			f.add("sign", node, f.at(node.TokPos), 2, to.String())
		}
		if node.Tok != token.DEFINE {
			f.leaveOut(node)
		}
	case *ast.ExprStmt:
		f.leaveOut(node)
	case *ast.IfStmt:
		f.add("never", node.Cond, f.at(node.Cond.Pos()), int(node.Cond.End()-node.Cond.Pos()),
			"(("+string(f.source(node.Cond))+") && false)")
	}
	return true
}

func (f *finder) leaveOut(node ast.Node) {
	f.add("left out", node, f.at(node.Pos()), int(node.End()-node.Pos()), "")
}

// add notes that length bytes at an offset become another text. The node says which place it is.
func (f *finder) add(kind string, node ast.Node, from, length int, with string) {
	m := mutant{file: f.file, function: f.function, kind: kind, source: strings.Join(strings.Fields(string(f.source(node))), " ")}
	f.count[m]++
	m.nth = f.count[m]
	f.places = append(f.places, place{mutant: m, from: from, to: from + length, with: with})
}

func (f *finder) at(pos token.Pos) int { return f.fset.Position(pos).Offset }

func (f *finder) source(node ast.Node) []byte { return f.text[f.at(node.Pos()):f.at(node.End())] }

// writeOverlay writes what go's -overlay needs to see a file changed, and returns its path.
func writeOverlay(dir, root, file string, text []byte) (string, error) {
	if _, err := format.Source(text); err != nil {
		return "", fmt.Errorf("the change is no Go: %w", err)
	}
	original, err := filepath.Abs(filepath.Join(root, file))
	if err != nil {
		return "", err
	}
	changed := filepath.Join(dir, filepath.Base(file))
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{original: changed}})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(changed, text, 0o600); err != nil {
		return "", err
	}
	return path, os.WriteFile(path, overlay, 0o600)
}
