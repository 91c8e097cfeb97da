package torture

import (
	"context"
	"fmt"
	"time"
)

// replicated is what Sentinel and Cluster have in common: groups of nodes that copy each other.
type replicated struct {
	fleet *fleet
	all   []*node
	books *failovers
}

func newReplicated(f *fleet) replicated {
	return replicated{fleet: f, books: newFailovers()}
}

func (s *replicated) nodes() []*node        { return s.all }
func (s *replicated) failovers() *failovers { return s.books }
func (s *replicated) readings() *failovers  { return s.books }

func (s *replicated) ledger(ctx context.Context) (sum int64, err error) {
	for _, n := range s.all {
		r, err := s.books.look(ctx, n)
		if err != nil {
			return 0, fmt.Errorf("torture: ledger: %w", err)
		}
		if r.master {
			sum += r.sum
		}
	}
	return sum, nil
}

// inSync wants one master in each group, and of each other node that it has a copy of that one.
func (s *replicated) inSync(ctx context.Context) error {
	masters := map[int]*node{}
	readings := map[*node]reading{}
	for _, n := range s.all {
		r, err := s.books.look(ctx, n)
		if err != nil {
			return err
		}
		readings[n] = r
		if m := masters[n.group]; r.master && m != nil {
			return fmt.Errorf("%s and %s are masters", m.name, n.name)
		} else if r.master {
			masters[n.group] = n
		}
	}
	for n, r := range readings {
		switch m := masters[n.group]; {
		case m == nil:
			return fmt.Errorf("nobody is master in the group of %s", n.name)
		case m != n && (!r.synced || r.of != m.addr):
			return fmt.Errorf("%s is not in sync with %s", n.name, m.name)
		}
	}
	return nil
}

// otherMaster is the master in a node's group, if that is another one.
func (s *replicated) otherMaster(ctx context.Context, n *node) *node {
	for _, m := range s.all {
		if m == n || m.group != n.group {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		r, err := m.read(ctx)
		cancel()
		if err == nil && r.master {
			return m
		}
	}
	return nil
}
