package console

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/offpath-io/offpath/internal/natssource"
	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/rules/envoyrules"
)

// New rules are first compared with those in force, and then written by whoever has seen the
// difference: only if the bucket still has the revision that they were compared with.

// rulesOrder is a set that somebody wants to have.
type rulesOrder struct {
	Text string `json:"text"`
	// Revision is the bucket's when it was compared, 0 for none.
	Revision uint64 `json:"revision"`
}

// RulesDiff is what a set changes.
type RulesDiff struct {
	// Revision is the bucket's latest, or the one that the set has become. InForce is the one that
	// it was compared with: an earlier one if the latest is refused.
	Revision uint64 `json:"revision"`
	InForce  uint64 `json:"in_force"`
	Rules    int    `json:"rules"`
	Same     bool   `json:"same"` // to the letter
	// Refused says why it is not a good set; the rest is empty then.
	Refused string         `json:"refused,omitempty"`
	Changes []rules.Change `json:"changes"`
}

var (
	errBadRules  = errors.New("refused")
	errFileRules = errors.New("this fleet's rules are in files of its checkers, not in the bucket")
	errSigned    = errors.New("this fleet's rules are signed, and this console has no --rules-signing-key-file: " +
		"write them with the command that has the key")
)

// compare says what a set would change. The error is that of a set that is not a good one.
func (b *ruleBook) compare(text []byte) (RulesDiff, error) {
	set, err := envoyrules.Read(text)
	if err != nil {
		return RulesDiff{}, fmt.Errorf("%w: %w", errBadRules, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return RulesDiff{
		Revision: b.revision, InForce: b.inForce, Rules: len(set.Rules()), Same: string(b.text) == string(text),
		Changes: rules.Diff(b.set, set),
	}, nil
}

func (c *Console) diffRules(_ context.Context, _ Who, o *rulesOrder) (any, error) {
	if c.o.SetRules == nil {
		return nil, errFileRules
	}
	d, err := c.rules.compare([]byte(o.Text))
	if errors.Is(err, errBadRules) { // which is an answer
		return RulesDiff{Refused: err.Error(), Changes: []rules.Change{}}, nil
	}
	return d, err
}

// applyRules writes a set, and writes down who did.
func (c *Console) applyRules(ctx context.Context, who Who, o *rulesOrder) (any, error) {
	if c.o.SetRules == nil {
		return nil, errFileRules
	}
	d, err := c.rules.compare([]byte(o.Text))
	if err != nil {
		return nil, err
	}
	options := natssource.Options{Verifier: c.o.RulesVerifier}
	if c.o.RulesKey != nil {
		options.Key = c.o.RulesKey()
	} else if c.o.RulesVerifier != nil || c.rules.isSigned() {
		return nil, errSigned
	}
	bucket, err := natssource.New(c.o.Conn, c.o.Namespace, options)
	if err != nil {
		return nil, err
	}
	err = c.operator.note(ctx, Record{Who: who, What: "rules"}, func() (string, error) {
		var failed error
		if failed = bucket.CheckSize([]byte(o.Text)); failed == nil {
			d.Revision, failed = bucket.Put(ctx, []byte(o.Text), o.Revision)
		}
		if errors.Is(failed, jetstream.ErrNoStreamResponse) {
			failed = fmt.Errorf("%w: the accounts of NATS may not let aggregators write rules, or JetStream is off", failed)
		}
		return fmt.Sprintf("revision %d, %s", d.Revision, counted(len(d.Changes), "rule changed", "rules changed")), failed
	})
	return d, err
}

// isSigned says whether the set in the bucket has a signature, which is not verified.
func (b *ruleBook) isSigned() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.signed
}
