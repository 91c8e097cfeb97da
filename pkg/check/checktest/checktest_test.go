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

// asker is what services and doors ask. A *check.Checker has all of it, with the same signatures.
type asker interface {
	Check(identity.Attributes, int64) check.Decision
	CheckToken(identity.Attributes, int64) (check.Decision, string)
	Acquire(context.Context, identity.Attributes, int64) (check.Decision, error)
	AcquireToken(context.Context, identity.Attributes, int64) (check.Decision, string, error)
	Wait(context.Context, identity.Attributes, int64) (check.Decision, error)
	Peek(identity.Attributes, int64) check.Decision
	Record(identity.Attributes, int64)
	Settle(string, int64) error
	Rules() *rules.Set
}

var (
	_ asker = (*check.Checker)(nil)
	_ asker = (*checktest.Checker)(nil)
)

var kristie = identity.Attributes{{Name: "user", Value: "kristie"}}

// every asks for a decision in all ways, and says whether each let the hit pass.
func every(t *testing.T, c asker) (passed []bool) {
	t.Helper()
	ctx := context.Background()
	d := c.Check(kristie, 1)
	e, token := c.CheckToken(kristie, 2)
	f, err := c.Acquire(ctx, kristie, 3)
	g, token2, err2 := c.AcquireToken(ctx, kristie, 4)
	h, err3 := c.Wait(ctx, kristie, 5)
	i := c.Peek(kristie, 6)
	if err := errors.Join(err, err2, err3); err != nil {
		t.Error(err)
	}
	if (token != "") != e.Allowed || (token2 != "") != g.Allowed {
		t.Errorf("tokens %q and %q", token, token2)
	}
	for _, d := range []check.Decision{d, e, f, g, h, i} {
		passed = append(passed, d.Allowed)
	}
	return passed
}

func TestDecides(t *testing.T) {
	yes, no := checktest.Allowed(5), checktest.Denied(time.Second)
	for _, tt := range []struct {
		why  string
		c    *checktest.Checker
		want []bool // of every
	}{
		{"allows", checktest.Allow(), []bool{true, true, true, true, true, true}},
		{"denies", checktest.Deny(time.Second), []bool{false, false, false, false, false, false}},
		{"an empty script", checktest.Script(), []bool{true, true, true, true, true, true}},
		{"a script, whose end stays", checktest.Script(yes, no, yes, no), []bool{true, false, true, false, false, false}},
		{"a value", checktest.ByAttribute("user", map[string]check.Decision{"kristie": no}), []bool{false, false, false, false, false, false}},
		{"another value", checktest.ByAttribute("user", map[string]check.Decision{"bob": no}), []bool{true, true, true, true, true, true}},
		{"another attribute", checktest.ByAttribute("ip", map[string]check.Decision{"kristie": no}), []bool{true, true, true, true, true, true}},
		{"a function", checktest.By(func(a checktest.Asked) check.Decision {
			if a.Cost > 3 || a.Method == "Check" {
				return no
			}
			return yes
		}), []bool{false, true, true, false, false, false}},
	} {
		if got := every(t, tt.c); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.why, got, tt.want)
		}
	}
}

// What was asked is remembered, in order, and does not change when the asker's memory does.
func TestAsked(t *testing.T) {
	c := checktest.Deny(time.Second)
	every(t, c)
	c.Record(kristie, 7)
	refused := errors.New("no")
	if err := errors.Join(c.Settle("a", 8), c.SettleError(refused).Settle("b", 9)); !errors.Is(err, refused) {
		t.Error(err)
	}
	attrs := slices.Clone(kristie)
	c.Check(attrs, 10)
	attrs[0].Value = "bob"

	var got []string
	for _, a := range c.Asked() {
		got = append(got, fmt.Sprint(a.Method, a.Attributes, a.Cost, a.Token, a.Decision.Rule))
	}
	want := []string{
		"Check[{user kristie}] 1checktest", "CheckToken[{user kristie}] 2checktest", "Acquire[{user kristie}] 3checktest",
		"AcquireToken[{user kristie}] 4checktest", "Wait[{user kristie}] 5checktest", "Peek[{user kristie}] 6checktest",
		"Record[{user kristie}] 7", "Settle[] 8a", "Settle[] 9b", "Check[{user kristie}] 10checktest",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
}

// Who waits while his context ends is denied, whatever the script says, and the script stays where it is.
func TestContextsEnd(t *testing.T) {
	c := checktest.Script(checktest.Allowed(1), checktest.Denied(1))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if d, err := c.Wait(ctx, kristie, 1); d.Allowed || !errors.Is(err, context.Canceled) {
		t.Errorf("Wait: %+v, %v", d, err)
	}
	if d, err := c.Acquire(ctx, kristie, 1); d.Allowed || !errors.Is(err, context.Canceled) {
		t.Errorf("Acquire: %+v, %v", d, err)
	}
	if d, token, err := c.AcquireToken(ctx, kristie, 1); d.Allowed || token != "" || !errors.Is(err, context.Canceled) {
		t.Errorf("AcquireToken: %+v, %q, %v", d, token, err)
	}
	if d := c.Check(kristie, 1); !d.Allowed || len(c.Asked()) != 4 {
		t.Errorf("%+v, asked %d times", d, len(c.Asked()))
	}
}

func TestRules(t *testing.T) {
	c := checktest.Allow()
	if got := c.Rules().Attributes(); len(got) != 0 {
		t.Errorf("at first doors read %q", got)
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

// Of a script, each answer is given once, however many ask at a time.
func TestConcurrent(t *testing.T) {
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
				c.Record(kristie, 1)
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
