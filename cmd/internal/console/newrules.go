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
	// Revision is that of the bucket with which it was compared, 0 for none.
	Revision uint64 `json:"revision"`
}

// RulesDiff is what a set changes.
type RulesDiff struct {
	// Revision is the one that it was compared with, or that it has become.
	Revision uint64 `json:"revision"`
	Rules    int    `json:"rules"`
	Same     bool   `json:"same"` // to the letter
	// Refused says why it is not a good set; the rest is empty then.
	Refused string       `json:"refused,omitempty"`
	Changes []RuleChange `json:"changes"`
}

// RuleChange is what becomes of one rule.
type RuleChange struct {
	Rule   string      `json:"rule"`
	What   string      `json:"what"` // added, removed or changed
	Fields []RuleField `json:"fields"`
}

// RuleField is one field of it, as YAML; "" where it has its default, or is not there.
type RuleField struct {
	Field string `json:"field"`
	Old   string `json:"old"`
	New   string `json:"new"`
}

var (
	errBadRules  = errors.New("refused")
	errFileRules = errors.New("this fleet's rules are in files of its checkers, not in the bucket")
	errSigned    = errors.New("this fleet's rules are signed, and this console has no --rules-signing-key-file: " +
		"write them with the command that has the key")
)

// compare says what a set would change. The error is that of a set that is not a good one.
func (b *ruleBook) compare(text []byte) (d RulesDiff, err error) {
	set, err := envoyrules.Read(text)
	if err != nil {
		return d, fmt.Errorf("%w: %w", errBadRules, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	d = RulesDiff{Revision: b.revision, Rules: len(set.Rules()), Same: string(b.text) == string(text), Changes: []RuleChange{}}
	for _, c := range rules.Diff(b.set, set) {
		one := RuleChange{c.Name, c.Kind.String(), []RuleField{}}
		for _, f := range c.Fields {
			one.Fields = append(one.Fields, RuleField(f))
		}
		d.Changes = append(d.Changes, one)
	}
	return d, nil
}

func (c *Console) diffRules(_ context.Context, _ Who, o *rulesOrder) (any, error) {
	if c.o.SetRules == nil {
		return nil, errFileRules
	}
	d, err := c.rules.compare([]byte(o.Text))
	if errors.Is(err, errBadRules) { // which is an answer
		return RulesDiff{Refused: err.Error(), Changes: []RuleChange{}}, nil
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
