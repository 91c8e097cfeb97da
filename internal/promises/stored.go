package promises

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/window"
)

// Shards is how many there are in the recorded store.
const Shards = 3

// shapes are windows that last for longer than a test.
var shapes = []aggregate.Rule{
	{Name: "day", Shape: window.Shape{Length: 24 * time.Hour, Buckets: 1}, Limit: 1000, Revision: 2},
	{Name: "fixed", Shape: window.Shape{Length: 24 * time.Hour, Buckets: 1, Fixed: true}, Limit: 1000, Revision: 2},
	{Name: "hours", Shape: window.Shape{Length: 24 * time.Hour, Buckets: 24}, Limit: 1000, Revision: 2},
}

// texts are keys: a plain one, one that is no text, one that is too long to be a field.
var texts = []string{"kristie", "\x00\xff\r\n", strings.Repeat("long ", 20)}

// fold has hits of all rules and keys, of the current bucket and the one before it. Hits of nothing just read.
func fold(hits int64, marks ...aggregate.Mark) *aggregate.Fold {
	f := &aggregate.Fold{Shard: 1, Now: Start, Made: Start, Marks: marks, Rules: shapes}
	for i, rule := range shapes {
		f.Ledger = append(f.Ledger, aggregate.Tally{Counted: 3 * hits * int64(i+1), Late: hits, Refused: 2 * hits})
		for j, text := range texts {
			current := rule.Shape.Bucket(Start)
			key := aggregate.Key{Rule: i, Text: text, Cells: []aggregate.Cell{{Bucket: current, Count: hits * int64(i*10+j+1)}}}
			if !rule.Shape.Fixed {
				key.Cells = append([]aggregate.Cell{{Bucket: current - 1, Count: hits * int64(i+5)}}, key.Cells...)
			}
			f.Keys = append(f.Keys, key)
		}
	}
	return f
}

// lease asks for permits of a key, of which some were granted before.
func lease(epoch uint64, known, want, returned int64) *aggregate.LeaseFold {
	current := shapes[0].Shape.Bucket(Start)
	ask := aggregate.Ask{Epoch: epoch, Bucket: current, Known: known, Want: want}
	if returned > 0 {
		ask.Returns = []aggregate.Cell{{Bucket: current, Count: returned}}
	}
	strict := shapes[0]
	strict.Name = "strict"
	return &aggregate.LeaseFold{
		Shard: 1, Now: Start, Rules: []aggregate.Rule{strict}, Keys: []aggregate.LeaseKey{{Text: "kristie", Asks: []aggregate.Ask{ask}}},
	}
}

var marks = []aggregate.Mark{{Epoch: 7, Sequence: 41}, {Epoch: 8, Sequence: 1}}

// Count counts in an empty store what is to be found there.
func Count(ctx context.Context, store aggregate.Store) error {
	if _, err := store.Join(ctx, Shards); err != nil {
		return err
	}
	for _, add := range []*aggregate.Fold{fold(1, marks[0]), fold(3, marks[1])} {
		if applied, err := store.Apply(ctx, add); err != nil || len(applied.Repeated) > 0 {
			return fmt.Errorf("apply: %v, %w", applied.Repeated, err)
		}
	}
	for _, l := range []*aggregate.LeaseFold{lease(7, 0, 5, 0), lease(8, 0, 900, 0), lease(7, 5, 0, 2)} {
		if _, err := store.Lease(ctx, l); err != nil {
			return err
		}
	}
	return nil
}

// Found is what a store says of all that was counted.
type Found struct {
	Shards int
	Totals map[string][]aggregate.Cell
	Ledger aggregate.Ledger
	// Held are the permits of the key, by bucket.
	Held []aggregate.Cell
}

// Find reads what Count has counted.
func Find(ctx context.Context, store aggregate.Store, ledger func(context.Context) (aggregate.Ledger, error)) (json.RawMessage, error) {
	fleet, err := store.Join(ctx, 0)
	if err != nil {
		return nil, err
	}
	reading := fold(0)
	applied, err := store.Apply(ctx, reading)
	if err != nil {
		return nil, err
	}
	found := Found{Shards: fleet.Shards, Totals: make(map[string][]aggregate.Cell)}
	for i, key := range reading.Keys {
		for _, cell := range applied.Totals[i] {
			if cell.Count > 0 { // zeros may be left out
				name := fmt.Sprintf("%s %q", shapes[key.Rule].Name, key.Text)
				found.Totals[name] = append(found.Totals[name], cell)
			}
		}
	}
	leased, err := store.Lease(ctx, lease(7, 5, 0, 2))
	if err != nil {
		return nil, err
	}
	found.Held = leased.Keys[0].Held
	if found.Ledger, err = ledger(ctx); err != nil {
		return nil, err
	}
	return json.MarshalIndent(found, "", " ")
}
