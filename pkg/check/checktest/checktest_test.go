package checktest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/check/checktest"
	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/rules"
)

// asker is what services and adapters ask. A *check.Checker has all of it, with the same
// signatures.
type asker interface {
	Check(identity.Attributes, int64) check.Decision
	Do(check.Request) check.Result
	Wait(context.Context, check.Request) (check.Result, error)
	Settle(string, int64) error
	Rules() *rules.Set
}

var (
	_ asker = (*check.Checker)(nil)
	_ asker = (*checktest.Checker)(nil)
)

var kristie = identity.Attributes{{Name: "user", Value: "kristie"}}

// decideAll calls every method that decides, at costs of 1 to 6, and lists whether the hit passed.
// Its receipts have to agree.
func decideAll(ctx context.Context, c asker) (passed []bool, err error) {
	var errs [4]error
	var r [6]check.Result
	r[0].Decision = c.Check(kristie, 1)
	r[1] = c.Do(check.Request{Attributes: kristie, Cost: 2, Receipt: true})
	r[2], errs[0] = c.Wait(ctx, check.Request{Attributes: kristie, Cost: 3})
	r[3], errs[1] = c.Wait(ctx, check.Request{Attributes: kristie, Cost: 4, Receipt: true})
	r[4], errs[2] = c.Wait(ctx, check.Request{Attributes: kristie, Cost: 5, Mode: check.Reserve})
	r[5] = c.Do(check.Request{Attributes: kristie, Cost: 6, Mode: check.Peek})
	for _, r := range r {
		passed = append(passed, r.Allowed)
	}
	if (r[1].Receipt != "") != r[1].Allowed || (r[3].Receipt != "") != r[3].Allowed {
		errs[3] = fmt.Errorf("receipts %q, %q for %v", r[1].Receipt, r[3].Receipt, passed)
	}
	return passed, errors.Join(errs[:]...)
}

func TestDecides(t *testing.T) {
	yes, no := checktest.Allowed(5), checktest.Denied(time.Second)
	all, none := []bool{true, true, true, true, true, true}, make([]bool, 6)
	for _, tt := range []struct {
		why  string
		c    *checktest.Checker
		want []bool // of decideAll
	}{
		{"allows", checktest.Allow(), all},
		{"denies", checktest.Deny(time.Second), none},
		{"an empty script", checktest.Script(), all},
		{"a script, whose end stays", checktest.Script(yes, no, yes, no), []bool{true, false, true, false, false, false}},
		{"a value", checktest.ByAttribute("user", map[string]check.Decision{"kristie": no}), none},
		{"another value", checktest.ByAttribute("user", map[string]check.Decision{"bob": no}), all},
		{"another attribute", checktest.ByAttribute("ip", map[string]check.Decision{"kristie": no}), all},
		{"a function", checktest.By(func(a checktest.Asked) check.Decision {
			if a.Cost > 3 || a.Method == "Check" {
				return no
			}
			return yes
		}), []bool{false, true, true, false, false, false}},
	} {
		if got, err := decideAll(t.Context(), tt.c); err != nil || !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v; %v", tt.why, got, tt.want, err)
		}
	}
}

// TestAskedRemembersQuestions in order, also when the caller's memory changes.
func TestAskedRemembersQuestions(t *testing.T) {
	c := checktest.Deny(time.Second)
	if _, err := decideAll(t.Context(), c); err != nil {
		t.Error(err)
	}
	c.Do(check.Request{Attributes: kristie, Cost: 7, Mode: check.Record})
	refused := errors.New("no")
	if err := errors.Join(c.Settle("a", 8), c.SettleError(refused).Settle("b", 9)); !errors.Is(err, refused) {
		t.Error(err)
	}
	attrs := slices.Clone(kristie)
	c.Check(attrs, 10)
	attrs[0].Value = "bob"

	var got []string
	for _, a := range c.Asked() {
		got = append(got, fmt.Sprint(a.Method, a.Mode, a.Attributes, a.Cost, a.Settled, a.Decision.Rule))
	}
	want := []string{
		"Check0 [{user kristie}] 1checktest", "Do0 [{user kristie}] 2checktest",
		"Wait0 [{user kristie}] 3checktest", "Wait0 [{user kristie}] 4checktest",
		"Wait3 [{user kristie}] 5checktest", "Do1 [{user kristie}] 6checktest",
		"Do2 [{user kristie}] 7", "Settle0 [] 8a", "Settle0 [] 9b", "Check0 [{user kristie}] 10checktest",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
}

// TestCancelledContextsAreDenied, whatever the script says, and the script stays where it is.
func TestCancelledContextsAreDenied(t *testing.T) {
	c := checktest.Script(checktest.Allowed(1), checktest.Allowed(2), checktest.Allowed(3), checktest.Denied(1))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	passed, err := decideAll(ctx, c)
	if want := []bool{true, true, false, false, false, true}; !slices.Equal(passed, want) || !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want %v; %v", passed, want, err)
	}
	if d := c.Check(kristie, 1); d.Allowed || len(c.Asked()) != 7 {
		t.Errorf("%+v, asked %d times", d, len(c.Asked()))
	}
}

func TestRulesMayChange(t *testing.T) {
	c := checktest.Allow()
	if got := c.Rules().Attributes(); len(got) != 0 {
		t.Errorf("at first adapters read %q", got)
	}
	if got := c.For("user", "ip").Rules().Attributes(); !slices.Equal(got, []string{"ip", "user"}) {
		t.Errorf("then %q", got)
	}
	if r, ok := c.Rules().Lookup(checktest.Rule); !ok || r.Limit != checktest.Limit || r.Window.Length != time.Hour {
		t.Errorf("the rule of the decisions is %+v", r)
	}
	set, err := rules.Parse([]byte("rules: [{name: r, key: [org], limit: 1/day}]"))
	if err != nil {
		t.Fatal(err)
	}
	if c.WithRules(set).Rules() != set {
		t.Error("other rules")
	}
	defer func() {
		if p := recover(); p == nil || !strings.Contains(fmt.Sprint(p), "checktest: For") {
			t.Errorf("panic %v", p)
		}
	}()
	c.For("no spaces here")
}

// TestScriptAtOnce: each answer is given once, however many callers ask at a time.
func TestScriptAtOnce(t *testing.T) {
	var script []check.Decision
	for i := range 100 {
		script = append(script, checktest.Allowed(int64(i)))
	}
	c := checktest.Script(append(script, checktest.Denied(1))...)
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			for range 10 {
				c.Check(kristie, 1)
				c.Do(check.Request{Attributes: kristie, Cost: 1, Mode: check.Record})
				c.For("user").Rules()
				c.Asked()
			}
		})
	}
	all.Wait()
	seen := make(map[int64]bool)
	for _, a := range c.Asked() {
		if a.Method == "Check" {
			seen[a.Decision.Remaining] = true
		}
	}
	if d := c.Check(kristie, 1); len(seen) != 100 || d.Allowed {
		t.Errorf("%d answers, and then %+v", len(seen), d)
	}
}
