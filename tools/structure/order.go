package main

import (
	"cmp"
	"slices"
)

// A graph says for each file, by its number, which others it uses.
type graph []map[int]bool

func (g graph) edges() int {
	n := 0
	for _, to := range g {
		n += len(to)
	}
	return n
}

// upward returns the edges that run from a lower file to a higher one when the files are put in an
// order in which few do. Each strongly connected part is ordered by itself, since edges between
// parts can all run down.
func (g graph) upward() [][2]int {
	var up [][2]int
	for _, part := range g.parts() {
		place := map[int]int{}
		for i, file := range g.order(part) {
			place[file] = i
		}
		for _, from := range part {
			for to := range g[from] {
				if at, ok := place[to]; ok && at < place[from] {
					up = append(up, [2]int{from, to})
				}
			}
		}
	}
	slices.SortFunc(up, func(a, b [2]int) int {
		return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1]))
	})
	return up
}

// inside returns how many edges are within strongly connected parts.
func (g graph) inside() int {
	n := 0
	for _, part := range g.parts() {
		for _, from := range part {
			for _, to := range part {
				if g[from][to] {
					n++
				}
			}
		}
	}
	return n
}

// parts returns the strongly connected parts of the graph, by Tarjan's algorithm.
func (g graph) parts() [][]int {
	t := tarjan{graph: g, index: make([]int, len(g)), low: make([]int, len(g))}
	for file := range g {
		if t.index[file] == 0 {
			t.visit(file)
		}
	}
	return t.parts
}

type tarjan struct {
	graph      graph
	index, low []int // index is 0 where a file has not been visited
	next       int
	stack      []int
	parts      [][]int
}

func (t *tarjan) visit(file int) {
	t.next++
	t.index[file], t.low[file] = t.next, t.next
	t.stack = append(t.stack, file)
	for to := range t.graph[file] {
		if t.index[to] == 0 {
			t.visit(to)
			t.low[file] = min(t.low[file], t.low[to])
		} else if slices.Contains(t.stack, to) {
			t.low[file] = min(t.low[file], t.index[to])
		}
	}
	if t.low[file] == t.index[file] {
		at := slices.Index(t.stack, file)
		part := slices.Sorted(slices.Values(t.stack[at:]))
		t.stack = t.stack[:at]
		t.parts = append(t.parts, part)
	}
}

// order puts files that use each other into an order: first greedily, the file of which most edges
// run down on top (Eades, Lin and Smyth 1993), then by moving single files as long as that helps.
func (g graph) order(part []int) []int {
	rest := slices.Clone(part)
	var order []int
	for len(rest) > 0 {
		best, bestSurplus := 0, -len(part)
		for i, file := range rest {
			surplus := 0
			for _, other := range rest {
				surplus += g.edge(file, other) - g.edge(other, file)
			}
			if surplus > bestSurplus {
				best, bestSurplus = i, surplus
			}
		}
		order = append(order, rest[best])
		rest = slices.Delete(rest, best, best+1)
	}
	for g.improve(order) {
	}
	return order
}

// improve moves each file to where fewest edges run up, and says whether any has moved.
func (g graph) improve(order []int) bool {
	moved := false
	for _, file := range slices.Clone(order) {
		from := slices.Index(order, file)
		best, bestGain := from, 0
		for _, step := range []int{-1, 1} {
			gain := 0
			for to := from + step; to >= 0 && to < len(order); to += step {
				other := order[to]
				gain += step * (g.edge(other, file) - g.edge(file, other))
				if gain > bestGain {
					best, bestGain = to, gain
				}
			}
		}
		if bestGain > 0 {
			order = slices.Insert(slices.Delete(order, from, from+1), best, file)
			moved = true
		}
	}
	return moved
}

// edge returns 1 if one file uses the other, else 0.
func (g graph) edge(from, to int) int {
	if from != to && g[from][to] {
		return 1
	}
	return 0
}
