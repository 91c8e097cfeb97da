package torture

import (
	"context"
	"errors"
	"fmt"
)

// single is one Redis alone. Each aggregator has a link of its own to it.
type single struct {
	fleet *fleet
	node  *node
	seen  *failovers // only what it had when
}

func startSingle(ctx context.Context, f *fleet) (*single, error) {
	n, err := f.startNode(ctx, "redis", nil)
	return &single{f, n, newFailovers()}, err
}

func (s *single) nodes() []*node                      { return []*node{s.node} }
func (s *single) inSync(context.Context) error        { return nil }
func (s *single) whole(context.Context) error         { return nil }
func (s *single) rejoin(context.Context, *node) error { return nil }
func (s *single) failovers() *failovers               { return nil }
func (s *single) readings() *failovers                { return s.seen }
func (s *single) failover(context.Context, int) (*node, error) {
	return nil, errors.New("there is nobody to take over")
}

func (s *single) url(from string) (string, error) {
	address, err := s.fleet.connect(from, s.node.name, s.node.redis.Addr())
	return "redis://" + address, err
}

func (s *single) ledger(ctx context.Context) (int64, error) {
	r, err := s.node.read(ctx)
	if err != nil {
		return 0, fmt.Errorf("torture: ledger: %w", err)
	}
	return r.sum, nil
}
