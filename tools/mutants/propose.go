package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
)

// proposeList draws mutants evenly from the files named on standard input: one of each file in
// turn, each kind as often as the file has it. What does not compile is left out, so that every
// line of the list can be run.
func proposeList(ctx context.Context, root string, in io.Reader, out io.Writer, want int, seed uint64) error {
	random := rand.New(rand.NewPCG(seed, 0))
	var files [][]place
	names := bufio.NewScanner(in)
	for names.Scan() {
		text, err := os.ReadFile(filepath.Join(root, names.Text()))
		if err != nil {
			return err
		}
		places, err := placesOf(names.Text(), text)
		if err != nil {
			return err
		}
		random.Shuffle(len(places), func(i, j int) { places[i], places[j] = places[j], places[i] })
		files = append(files, places)
	}
	for drawn, left := 0, true; drawn < want && left; {
		left = false
		for i := range files {
			for len(files[i]) > 0 && drawn < want {
				p := files[i][0]
				files[i], left = files[i][1:], true
				if !compiles(ctx, root, p.mutant) {
					continue
				}
				drawn++
				if _, err := fmt.Fprintln(out, p.mutant); err != nil {
					return err
				}
				break
			}
		}
	}
	return names.Err()
}

// compiles tells whether the package still compiles with the change, and to something else: the
// compiler drops what has no effect only at link time, so equal text is the one thing that is
// looked at here.
func compiles(ctx context.Context, root string, m mutant) bool {
	changed, err := m.apply(root)
	if err != nil {
		return false
	}
	dir, err := os.MkdirTemp("", "mutant")
	if err != nil {
		return false
	}
	defer os.RemoveAll(dir)
	overlay, err := writeOverlay(dir, root, m.file, changed)
	if err != nil {
		return false
	}
	build := exec.CommandContext(ctx, "go", "build", "-overlay", overlay, "./"+filepath.Dir(m.file))
	build.Dir = root
	return build.Run() == nil
}
