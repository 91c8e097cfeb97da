package main

import (
	"bytes"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestLoad(t *testing.T) {
	got, err := load("testdata/module")
	if err != nil {
		t.Fatal(err)
	}
	want := []Package{
		{Path: "internal/testing/helper", Files: 1, Tests: 2, Longest: 2, Funcs: 1, Up: []string{}},
		{
			Path: "pair", Files: 3, Code: 21, Longest: 8, Tests: 7,
			Funcs: 2, Types: 2, Values: 1, // Name and All; A and B; One
			Refs: 4, Up: []string{"b.go uses a.go"}, Circle: 2,
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestRunChoosesPackages(t *testing.T) {
	var out bytes.Buffer
	if err := run([]string{"-root", "testdata/module", "-under", "pair"}, &out); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	if strings.Contains(text, "helper") || !strings.Contains(text, "all 1 packages") {
		t.Errorf("the table is\n%s", text)
	}
	err := run([]string{"-root", "testdata/module", "-under", "pai"}, &out)
	if err == nil || !strings.Contains(err.Error(), "no package pai") {
		t.Errorf("of a package that does not exist: %v", err)
	}
}

func TestCodeLines(t *testing.T) {
	for _, test := range []struct {
		name, source string
		want         int
	}{
		{"comments and blank lines", "package p\n\n// a\n\n/* b\nc */\n", 1},
		{"not formatted", "package p; var a = 1; var b = 2\n", 3},
		{"a long line", "package p\n\nvar a = `" + strings.Repeat("x", 195) + "`\n", 4},
		{"a line of 100 columns", "package p\n\nvar a = `" + strings.Repeat("x", 90) + "`\n", 2},
		{"a text with a blank line", "package p\n\nvar a = `x\n\n// y`\n", 3},
	} {
		got, err := codeLines([]byte(test.source))
		if err != nil {
			t.Fatal(err)
		}
		if got != test.want {
			t.Errorf("%s: %d lines, want %d", test.name, got, test.want)
		}
	}
}

func TestUpward(t *testing.T) {
	for _, test := range []struct {
		name         string
		edges        [][2]int
		up, inCircle int
	}{
		{"a chain", [][2]int{{0, 1}, {1, 2}, {0, 2}}, 0, 0},
		{"a chain against the order of names", [][2]int{{2, 1}, {1, 0}}, 0, 0},
		{"two that use each other", [][2]int{{0, 1}, {1, 0}}, 1, 2},
		{"a circle with a tail", [][2]int{{0, 1}, {1, 2}, {2, 0}, {2, 3}}, 1, 3},
		{"two circles through one file", [][2]int{{0, 1}, {1, 0}, {0, 2}, {2, 3}, {3, 0}}, 2, 5},
		{"one reference closes many circles",
			[][2]int{{0, 1}, {0, 2}, {0, 3}, {1, 2}, {1, 3}, {2, 3}, {3, 0}}, 1, 7},
	} {
		g := make(graph, 4)
		for i := range g {
			g[i] = map[int]bool{}
		}
		for _, edge := range test.edges {
			g[edge[0]][edge[1]] = true
		}
		up := g.upward()
		if len(up) != test.up || g.inside() != test.inCircle {
			t.Errorf("%s: %d up, %d in a circle, want %d and %d",
				test.name, len(up), g.inside(), test.up, test.inCircle)
		}
		if without := g.without(up); len(without.upward()) != 0 {
			t.Errorf("%s: circles are left without %v", test.name, up)
		}
	}
}

func (g graph) without(edges [][2]int) graph {
	rest := make(graph, len(g))
	for from, to := range g {
		rest[from] = map[int]bool{}
		for other := range to {
			if !slices.Contains(edges, [2]int{from, other}) {
				rest[from][other] = true
			}
		}
	}
	return rest
}
