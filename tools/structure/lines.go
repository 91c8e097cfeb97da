package main

import (
	"go/format"
	"go/scanner"
	"go/token"
	"strings"
)

const (
	columns    = 100 // of a line that counts once
	tabColumns = 4
)

// codeLines returns how many lines of code a Go file has (see the command's comment).
func codeLines(source []byte) (int, error) {
	source, err := format.Source(source)
	if err != nil {
		return 0, err
	}
	total := 0
	for line, end := range codeEnds(source) {
		if text := strings.TrimRight(line[:end], " \t"); text != "" {
			total += (width(text) + columns - 1) / columns
		}
	}
	return total, nil
}

// codeEnds yields each line of a file and where its last token ends in it: 0 if it has none.
func codeEnds(source []byte) func(yield func(line string, end int) bool) {
	fset := token.NewFileSet()
	file := fset.AddFile("", -1, len(source))
	var s scanner.Scanner
	s.Init(file, source, nil, 0)
	covered := make([]bool, len(source)) // by tokens, hence not by comments
	for {
		pos, kind, text := s.Scan()
		if kind == token.EOF {
			break
		}
		if kind == token.SEMICOLON && text == "\n" { // inserted by the scanner
			continue
		}
		if text == "" {
			text = kind.String()
		}
		start := file.Offset(pos)
		for i := start; i < min(start+len(text), len(source)); i++ {
			covered[i] = true
		}
	}
	return func(yield func(string, int) bool) {
		start := 0
		for line := range strings.Lines(string(source)) {
			line, at := strings.TrimSuffix(line, "\n"), start
			start += len(line) + 1
			end := len(line)
			for end > 0 && !covered[at+end-1] {
				end--
			}
			if !yield(line, end) {
				return
			}
		}
	}
}

func width(text string) int {
	n := 0
	for _, r := range text {
		if r == '\t' {
			n += tabColumns
		} else {
			n++
		}
	}
	return n
}
