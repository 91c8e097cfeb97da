package main

import (
	"os"
	"testing"
)

// TestEveryLineHasItsPlace: where code moves, its lines of the list move with it.
func TestEveryLineHasItsPlace(t *testing.T) {
	file, err := os.Open("mutants.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	mutants, err := readList(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mutants {
		if _, err := m.apply("../.."); err != nil {
			t.Errorf("%v: %v", m, err)
		}
	}
}
