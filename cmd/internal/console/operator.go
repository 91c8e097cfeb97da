package console

import (
	"context"
	"fmt"
	"time"

	"github.com/offpath-io/offpath/internal/blocks"
	"github.com/offpath-io/offpath/internal/status"
)

// Operator blocks keys, and lets them go, for people; and writes down who did what.
type Operator struct {
	bucket *blocks.Bucket
	now    func() time.Time
	write  func(context.Context, Record) error
}

// NewOperator returns an operator who tells time by now, which should be the fleet's, and writes
// down by write.
func NewOperator(bucket *blocks.Bucket, now func() time.Time, write func(context.Context, Record) error) *Operator {
	return &Operator{bucket, now, write}
}

// BlockView is a block to show.
type BlockView struct {
	Rule  string      `json:"rule"`
	Key   status.Text `json:"key"`
	Until time.Time   `json:"until"`
	// EndsIn is in how many milliseconds that is; the reader's clock may be wrong.
	EndsIn int64     `json:"ends_in_ms"`
	By     string    `json:"by"`
	At     time.Time `json:"at"`
}

func blockView(e blocks.Block, now time.Time) BlockView {
	return BlockView{
		Rule: e.Rule, Key: status.Text(e.Key), Until: e.Until, EndsIn: milliseconds(e.Until.Sub(now)), By: e.By, At: e.At,
	}
}

// Block keeps a key out for so long, at every checker within a moment.
func (o *Operator) Block(ctx context.Context, who Who, rule, key string, span time.Duration) (BlockView, error) {
	now := o.now()
	e := blocks.Block{Rule: rule, Key: key, At: now, Until: now.Add(span), By: who.Name}
	r := Record{Who: who, What: "block", Rule: rule, Key: status.Text(key), Until: e.Until}
	err := o.note(ctx, r, func() (string, error) { return "for " + span.String(), o.bucket.Put(ctx, e) })
	return blockView(e, now), err
}

// Unblock ends a block; the error may be blocks.ErrNoBlock.
func (o *Operator) Unblock(ctx context.Context, who Who, rule, key string) error {
	r := Record{Who: who, What: "unblock", Rule: rule, Key: status.Text(key)}
	return o.note(ctx, r, func() (string, error) { return "", o.bucket.Delete(ctx, rule, key) })
}

// note does something, and writes down what became of it. If only that fails, the error says so.
func (o *Operator) note(ctx context.Context, r Record, do func() (detail string, err error)) error {
	detail, err := do()
	r.At, r.Detail = o.now().UTC(), detail
	if err != nil {
		r.Error = err.Error()
	}
	// Not ctx: it may be over, because what was done took so long.
	writing, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	if unwritten := o.write(writing, r); err == nil && unwritten != nil {
		return fmt.Errorf("%w: %w", ErrUnwritten, unwritten)
	}
	return err
}
