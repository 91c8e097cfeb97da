package offpath_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/offpath-io/offpath"
	"github.com/offpath-io/offpath/internal/blocks"
	"github.com/offpath-io/offpath/internal/natssource"
	"github.com/offpath-io/offpath/internal/status"
	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/fleettest"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
	"github.com/offpath-io/offpath/internal/testing/signaturetest"
	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/identity"
)

var must = daemontest.Must

var kristie = identity.Attributes{{Name: "user", Value: "kristie"}}

// fleet is all that a participant joins: NATS, an aggregator, and the buckets.
type fleet struct {
	*testing.T
	bus    *fleettest.Fleet
	rules  *natssource.Bucket
	blocks *blocks.Bucket
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	f := &fleet{T: t, bus: fleettest.Start(t)}
	conn := serverstest.Connect(t, f.bus.URL())
	var err error
	f.rules, err = natssource.New(conn, offpath.DefaultNamespace, natssource.Options{})
	must(t, err)
	f.blocks, err = blocks.New(conn, offpath.DefaultNamespace, blocks.Options{})
	must(t, err)
	return f
}

// daily is a set of one rule, whose window no test outlasts.
func daily(limit int) []byte {
	return fmt.Appendf(nil, "rules: [{name: per-user, key: [user], limit: %d/day}]", limit)
}

func (f *fleet) apply(limit int) {
	f.Helper()
	there, _ := f.rules.Get(f.Context())
	_, err := f.rules.Put(f.Context(), daily(limit), there.Revision)
	must(f, err)
}

func (f *fleet) block() {
	f.Helper()
	now := time.Now()
	must(f, f.blocks.Put(f.Context(), blocks.Block{
		Rule: "per-user", Key: "kristie", At: now, Until: now.Add(time.Hour),
	}))
}

func (f *fleet) counted() int64 { return f.bus.Counted(f, "per-user") }

func (f *fleet) join(o offpath.Options) (*offpath.Participant, *check.Checker) {
	f.Helper()
	o.NATS, o.Checker.MaxIdleKeys = f.bus.URL(), 1000
	if o.Checker.DrainTimeout == 0 { // a machine that stands still delivers nothing meanwhile
		o.Checker.DrainTimeout = daemontest.Patience
	}
	participant, err := offpath.Start(f.Context(), o)
	must(f, err)
	f.Cleanup(func() { _ = participant.Close() })
	return participant, participant.Checker()
}

// limits waits until the limit is in force.
func (f *fleet) limits(c *check.Checker, limit int64) {
	f.Helper()
	daemontest.Eventually(f, "the limit is in force", func() bool { return c.Rules().Rules()[0].Limit == limit })
}

// TestAMemberFollowsItsFleet: rules that change, blocks and their ends come into force, also by the
// next connection when NATS has closed one for good; and all hits are counted once.
func TestAMemberFollowsItsFleet(t *testing.T) {
	f := newFleet(t)
	must(t, f.blocks.Make(t.Context()))
	f.apply(1000)
	participant, checker := f.join(offpath.Options{})
	passed := int64(0)
	pass := func() bool {
		d := checker.Check(kristie, 1)
		if d.Allowed {
			passed++
		}
		return d.Allowed
	}
	changes := func(limit int) {
		t.Helper()
		f.apply(limit)
		f.limits(checker, int64(limit))
		f.block()
		daemontest.Eventually(t, "the key is blocked", func() bool { return participant.Stats().Blocks.Keys == 1 })
		if pass() {
			t.Error("a blocked key passes")
		}
		must(t, f.blocks.Delete(t.Context(), "per-user", "kristie"))
		daemontest.Eventually(t, "it is not blocked any more", func() bool { return pass() && participant.Stats().Blocks.Keys == 0 })
	}
	if !pass() {
		t.Error("the first request is denied")
	}
	changes(2000)
	first := participant.Conn()
	first.Close() // as the library does after some errors of a server
	if !pass() {
		t.Error("without NATS it denies")
	}
	daemontest.Eventually(t, "there is another connection", func() bool { return participant.Conn() != first && participant.Conn().IsConnected() })
	changes(3000)
	must(t, f.bus.Restart()) // without what was in its buckets
	if !pass() {
		t.Error("after a restart of NATS it denies")
	}
	daemontest.Eventually(t, "there is a bucket for blocks again", func() bool {
		return f.blocks.Make(t.Context()) == nil // a request may meet a server that is still starting
	})
	changes(4000)
	for range 100 {
		pass()
	}
	must(t, participant.Close())
	if n := f.counted(); n != passed {
		t.Errorf("%d hits were counted, want %d", n, passed)
	}
	must(t, participant.Close()) // again
}

// TestAMemberIsListed: consoles hear how it is, what it decides by and whom it denies; and that it
// leaves, with all hits delivered.
func TestAMemberIsListed(t *testing.T) {
	f := newFleet(t)
	f.apply(2)
	var mu sync.Mutex
	var last status.Checker
	var rules []status.Rule
	conn := serverstest.Connect(t, f.bus.URL())
	daemontest.Background(t, func(ctx context.Context) error {
		return status.Listen(ctx, conn, offpath.DefaultNamespace, func(c status.Checker) {
			mu.Lock()
			defer mu.Unlock()
			if last = c; c.Set != nil {
				rules = c.Set
			}
		}, func(status.Aggregator) {})
	})
	must(t, conn.Flush())
	is := func(what string, holds func(c status.Checker) bool) {
		t.Helper()
		daemontest.Eventually(t, what, func() bool {
			mu.Lock()
			defer mu.Unlock()
			return holds(last)
		})
	}
	var denied []string
	participant, checker := f.join(offpath.Options{Checker: check.Options{
		OnDenied: func(rule, key string, _ int64) { denied = append(denied, rule+" "+key) },
	}})
	for range 3 {
		checker.Check(kristie, 1)
	}
	is("it is listed", func(c status.Checker) bool {
		return c.Name != "" && c.RulesRevision == 1 && c.Freshness == "fresh" && len(c.Rules) == 1 &&
			c.Rules[0] == status.Decisions{Rule: "per-user", Allowed: 2, Denied: 1, Charged: 2} &&
			len(c.Denied.List) == 1 && c.Denied.List[0].Key == "kristie"
	})
	f.apply(1)
	is("it has other rules", func(status.Checker) bool { return len(rules) == 1 && rules[0].Limit == 1 })
	checker.Check(identity.Attributes{{Name: "user", Value: "somebody"}}, 1)
	must(t, participant.Close())
	is("it leaves", func(c status.Checker) bool { return c.Leaving && c.Unreported == 0 })
	if n := f.counted(); n != 3 {
		t.Errorf("%d hits were counted, want 3", n)
	}
	if len(denied) != 1 || denied[0] != "per-user kristie" {
		t.Errorf("the service heard of %q", denied)
	}
}

// TestStartWithoutNATS: by rules of its own a participant decides at once; for those of the bucket
// it waits as long as it is told to, which is an error unless Begin says when they come.
func TestStartWithoutNATS(t *testing.T) {
	f := newFleet(t)
	must(t, f.bus.Stop())
	for _, o := range []offpath.Options{
		{RulesFile: daemontest.File(t, "rules.yaml", string(daily(5)))}, {Rules: string(daily(5))},
	} {
		o.Checker.DrainTimeout = time.Millisecond
		participant, checker := f.join(o)
		if !checker.Check(kristie, 1).Allowed {
			t.Error("it denies the first request")
		}
		if err := participant.Close(); !errors.Is(err, check.ErrUnreported) {
			t.Errorf("a hit that nobody has counted: %v", err)
		}
	}

	soon, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	o := offpath.Options{NATS: f.bus.URL()}
	if _, err := offpath.Start(soon, o); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "rules: none yet") {
		t.Errorf("without rules: %v", err)
	}
	begun := make(chan *check.Checker, 1)
	o.Begin = func(c *check.Checker) error { begun <- c; return nil }
	participant, err := offpath.Start(soon, o)
	must(t, err)
	defer func() { must(t, participant.Close()) }()
	if c := participant.Checker(); c != nil {
		t.Errorf("a checker without rules: %v", c)
	}
	must(t, f.bus.Restart())
	daemontest.Eventually(t, "there are rules", func() bool {
		_, err := f.rules.Put(t.Context(), daily(5), 0)
		return err == nil // a request may meet a server that is still starting
	})
	c := daemontest.Next(t, "it begins", begun)
	daemontest.Eventually(t, "it has the checker that it began with", func() bool { return participant.Checker() == c })
}

// TestAFleetWithRulesOfItsOwn needs no bucket: checkers that bring the same rules share the limit.
func TestAFleetWithRulesOfItsOwn(t *testing.T) {
	f := newFleet(t)
	const limit = 5
	one, first := f.join(offpath.Options{Rules: string(daily(limit))})
	two, second := f.join(offpath.Options{Rules: string(daily(limit))})
	for range limit {
		if !first.Check(kristie, 1).Allowed {
			t.Error("the first checker denies within the limit")
		}
	}
	daemontest.Eventually(t, "the other one denies", func() bool {
		return !second.Do(check.Request{Mode: check.Peek, Attributes: kristie}).Allowed
	})
	if a, b := one.Stats().Rules.Revision, two.Stats().Rules.Revision; a != b || a < 2 {
		t.Errorf("the same rules have the revisions %d and %d", a, b)
	}
	must(t, one.Close())
	if n := f.counted(); n != limit {
		t.Errorf("%d hits were counted, want %d", n, limit)
	}
}

// TestAlone: without a fleet there is one limit per participant, no connection, and a file of rules
// is followed all the same.
func TestAlone(t *testing.T) {
	file := daemontest.File(t, "rules.yaml", string(daily(2)))
	for _, o := range []offpath.Options{{Rules: string(daily(2))}, {RulesFile: file}} {
		o.NATS = "none"
		participant, err := offpath.Start(t.Context(), o)
		must(t, err)
		for i, want := range []bool{true, true, false} {
			if d := participant.Checker().Check(kristie, 1); d.Allowed != want || d.Freshness != check.Local {
				t.Errorf("request %d: %+v", i, d)
			}
		}
		if o.RulesFile != "" {
			must(t, os.WriteFile(file, daily(3), 0o600))
			daemontest.Eventually(t, "the limit is raised", func() bool { return participant.Checker().Check(kristie, 1).Allowed })
		}
		if s := participant.Stats(); participant.Conn() != nil || s.Blocks != (offpath.BlocksState{}) || s.Checker.Unreported() != 0 {
			t.Errorf("%+v", s)
		}
		must(t, participant.Close())
		must(t, participant.Close()) // again
	}
}

// TestASignedFleet: with public keys a participant takes what is signed, and nothing else.
func TestASignedFleet(t *testing.T) {
	f := newFleet(t)
	key := signaturetest.NewKey(t)
	conn := serverstest.Connect(t, f.bus.URL())
	signed, err := natssource.New(conn, offpath.DefaultNamespace, natssource.Options{Key: key})
	must(t, err)
	there, err := signed.Put(t.Context(), daily(3), 0)
	must(t, err)
	trusted := signaturetest.Verifier(t, key)
	_, checker := f.join(offpath.Options{RulesVerifier: trusted, BlocksVerifier: trusted})
	f.apply(1000)
	f.block()
	_, err = signed.Put(t.Context(), daily(4), there+1)
	must(t, err)
	f.limits(checker, 4)
	if !checker.Check(kristie, 1).Allowed {
		t.Error("an unsigned block is in force")
	}
}

func TestBadOptions(t *testing.T) {
	bad, good := daemontest.File(t, "bad.yaml", "rules: []"), daemontest.File(t, "good.yaml", string(daily(5)))
	for why, o := range map[string]offpath.Options{
		"no NATS":                              {Rules: string(daily(5))},
		"alone without rules":                  {NATS: "none"},
		"rules twice":                          {NATS: "none", Rules: string(daily(5)), RulesFile: good},
		"a file's name for rules":              {NATS: "none", Rules: good},
		"no URL":                               {NATS: "://"},
		"a bad namespace":                      {NATS: "nats://127.0.0.1:1", Namespace: "a.b"},
		"a bad name":                           {NATS: "nats://127.0.0.1:1", Name: "a b"},
		"no such file":                         {NATS: "nats://127.0.0.1:1", RulesFile: "nowhere.yaml"},
		"a bad file":                           {NATS: "nats://127.0.0.1:1", RulesFile: bad},
		"bad checker's bounds":                 {NATS: "nats://127.0.0.1:1", RulesFile: good, Checker: check.Options{FlushEvery: -1}},
		"the same with a bucket":               {NATS: "nats://127.0.0.1:1", Checker: check.Options{FlushEvery: -1}},
		"another name's epoch":                 {NATS: "nats://127.0.0.1:1", Name: "a", Checker: check.Options{Epoch: 7}},
		"a URL with a password and a bad port": {NATS: "nats://bob:hunter2@host:notaport"},
	} {
		participant, err := offpath.Start(t.Context(), o)
		if err == nil {
			_ = participant.Close()
			t.Errorf("%s: no error", why)
		} else if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the error has the password: %v", why, err)
		}
	}
}

// TestAClosedMember leaves nothing behind, whatever the service's own options of NATS handle, and
// its checker goes on deciding.
func TestAClosedMember(t *testing.T) {
	file := daemontest.File(t, "rules.yaml", string(daily(7)))
	atOnce, cancel := context.WithCancel(t.Context())
	cancel()
	before := runtime.NumGoroutine()
	for range 10 {
		participant, err := offpath.Start(atOnce, offpath.Options{
			NATS: "nats://127.0.0.1:1", RulesFile: file, Begin: func(*check.Checker) error { return nil }, Checker: check.Options{DrainTimeout: time.Millisecond},
			NATSOptions: []nats.Option{nats.ClosedHandler(func(*nats.Conn) {}), nats.NoCallbacksAfterClientClose()},
		})
		must(t, err)
		must(t, participant.Close())
		if !participant.Checker().Check(kristie, 1).Allowed {
			t.Error("it denies")
		}
	}
	daemontest.Eventually(t, "all goroutines have ended", func() bool { return runtime.NumGoroutine() <= before })
}
