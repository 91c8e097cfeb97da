package torture

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/offpath-io/offpath/loadtest/torture/found"
)

// hasOther says whether a part changes between two versions, if there are two: the last checker and
// the last aggregator do. The program that they start is a link to one of them.
func (f *fleet) hasOther(name string) bool {
	return f.previous != "" && slices.Contains([]string{
		fmt.Sprint("checker-", checkers-1), fmt.Sprint("aggregator-", aggregators-1),
	}, name)
}

func (f *fleet) versionOf(name string) string { return filepath.Join(f.dir, "version-of-"+name) }

// change has the other version of a part start in its place.
func (s *storm) change(ctx context.Context, f fault, run *found.Fault) error {
	parts := []*part{s.fleet.checkers[checkers-1], s.fleet.aggregators[aggregators-1]}
	p := parts[f.target%len(parts)]
	run.Target = p.name
	if !p.take() {
		return errBusy
	}
	defer p.release()
	return s.replace(ctx, p, Stop, f.length, func() error {
		path, program := s.fleet.versionOf(p.name), partKind(p.name)
		is, err := os.Readlink(path)
		if err != nil {
			return err
		}
		next := filepath.Join("previous", program)
		if is == next {
			next = program
		}
		run.Detail = "starts " + next
		if err := os.Remove(path); err != nil {
			return err
		}
		return os.Symlink(next, path)
	})
}
