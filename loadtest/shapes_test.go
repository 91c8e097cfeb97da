package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
)

func sum(bins []int) (n int) {
	for _, b := range bins {
		n += b
	}
	return n
}

// Each algorithm lets through what its words say.
func TestShapes(t *testing.T) {
	all, err := allShapes()
	if err != nil || len(all) != 5 {
		t.Fatal(len(all), err)
	}
	mostIn := func(bins []int, span int) (most int) {
		for i := range len(bins) - span + 1 {
			most = max(most, sum(bins[i:i+span]))
		}
		return most
	}
	for i, want := range []struct {
		name      string
		atOnce    int // the most in a tenth of a second
		inASecond int // the most in ten of them
	}{
		{"fixed_window", 10, 20}, {"sliding_window", 10, 14}, {"sliding_log", 10, 10}, {"token_bucket", 15, 25}, {"leaky_bucket", 1, 10},
	} {
		s := all[i]
		if s.Name != want.name || mostIn(s.Passed, 1) > want.atOnce || mostIn(s.Passed, 10) > want.inASecond || mostIn(s.Passed, 1) == 0 {
			t.Errorf("%s: %d at once, %d in a second, want %+v", s.Name, mostIn(s.Passed, 1), mostIn(s.Passed, 10), want)
		}
		if sum(s.Passed) >= len(asked()) {
			t.Errorf("%s: all of %d passed", s.Name, len(asked()))
		}
	}
}

// The picture is well-formed, and the one in the documentation is the newest.
func TestPicture(t *testing.T) {
	all, err := allShapes()
	must(t, err)
	picture := svg(all)
	for d := xml.NewDecoder(strings.NewReader(picture)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	kept, err := os.ReadFile("../docs/algorithms.svg")
	if err != nil || string(kept) != picture {
		t.Errorf("docs/algorithms.svg is not what is drawn now (%v): go run ./loadtest shapes docs/algorithms.svg", err)
	}
}
