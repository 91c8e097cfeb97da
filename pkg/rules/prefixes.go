package rules

import (
	"slices"
	"sort"
	"strings"
)

// prefixes finds which of many texts a value begins with.
type prefixes struct {
	list []prefixed // sorted by text
	// If the texts have few lengths: these, the greatest first, and the place of each text. That
	// touches less memory than searching the list.
	lengths []int
	places  map[string]int
}

// prefixed is what stands under one prefix.
type prefixed struct {
	text  string
	in    int // the place of the longest other prefix that text begins with, or -1
	index *index
}

func (p *prefixes) add(text string, under *index) {
	p.list = append(p.list, prefixed{text: text, index: under})
}

// nest sorts the prefixes and finds which of them lie in which.
func (p *prefixes) nest() {
	slices.SortFunc(p.list, func(a, b prefixed) int { return strings.Compare(a.text, b.text) })
	p.places = make(map[string]int, len(p.list))
	for i := range p.list {
		text := p.list[i].text
		in := i - 1
		for in >= 0 && !strings.HasPrefix(text, p.list[in].text) {
			in = p.list[in].in
		}
		p.list[i].in = in
		p.places[text] = i
		p.lengths = append(p.lengths, len(text))
	}
	slices.Sort(p.lengths)
	p.lengths = slices.Compact(p.lengths)
	slices.Reverse(p.lengths)
	if len(p.lengths) > 2*fewest {
		p.lengths, p.places = nil, nil
	}
}

// longest is the place of the longest of the prefixes that value begins with, or -1.
func (p *prefixes) longest(value string) int {
	if p.places == nil {
		return p.search(value)
	}
	for _, length := range p.lengths {
		if length <= len(value) {
			if place, ok := p.places[value[:length]]; ok {
				return place
			}
		}
	}
	return -1
}

// search is longest by the order of the list: if there is a prefix of value, the last prefix that
// does not come after value is the longest one, or begins with it.
func (p *prefixes) search(value string) int {
	// Not slices.BinarySearchFunc, by which value would escape.
	i := sort.Search(len(p.list), func(i int) bool { return p.list[i].text > value }) - 1
	for i >= 0 && !strings.HasPrefix(value, p.list[i].text) {
		i = p.list[i].in
	}
	return i
}
