package offpath

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/offpath-io/offpath/internal/filewatch"
	"github.com/offpath-io/offpath/internal/natssource"
	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/rules/envoyrules"
)

const good = "rules:\n  - name: a\n    key: [user]\n    limit: 5/second\n"

// newLocal is a checker whose rules come and change, and that reports to nobody. It begins unless
// *refuse says why not.
func newLocal(refuse *error) *reloadable {
	create := func(set *rules.Set, revision uint64) (*check.Checker, error) {
		return check.New(check.Options{Rules: set, Revision: revision, MaxIdleKeys: 1000})
	}
	return newReloadable(create, func(*check.Checker) error { return *refuse }, quiet)
}

func TestTheLastGoodSetStays(t *testing.T) {
	var refuse error
	r := newLocal(&refuse)
	refusals := int64(0)
	for _, step := range []struct {
		why          string
		revision     uint64
		data         string
		trouble      error // instead of data
		healed       bool
		refuse       error
		inForce      uint64 // the revision
		loads        int64
		line, column int    // of a mistake
		says         string // RulesState.String
	}{
		{why: "the source is not there", trouble: errors.New("no bucket"), says: "none yet, source: no bucket"},
		{why: "the first set is bad", revision: 1, data: "rules: []", line: 1, column: 8,
			says: "none yet, refused: line 1, column 8: rules: there are no rules"},
		{why: "refused by the service", revision: 2, data: good, refuse: errors.New("no room"), says: "none yet, refused: no room"},
		{why: "a good one", revision: 2, data: good, inForce: 2, loads: 1, says: "revision 2"},
		{why: "a bad one", revision: 3, data: strings.Replace(good, "5/second", "5/fortnight", 1),
			inForce: 2, loads: 1, line: 4, column: 12, says: "revision 2, refused: line 4, column 12: limit: "},
		{why: "the file goes", trouble: errors.New("gone"), inForce: 2, loads: 1, line: 4, column: 12, says: ", source: gone"},
		{why: "it is back, as bad as before", healed: true, inForce: 2, loads: 1, line: 4, column: 12, says: "revision 2, refused: line 4"},
		{why: "not even text", revision: 4, data: "\xff", inForce: 2, loads: 1, line: 1, column: 1,
			says: "revision 2, refused: line 1, column 1: byte 0xff is not UTF-8"},
		{why: "good again", revision: 5, data: good, inForce: 5, loads: 2, says: "revision 5"},
		{why: "a bucket made anew counts from 1", revision: 1, data: good, inForce: 1, loads: 3, says: "revision 1"},
	} {
		refuse = step.refuse
		before := time.Now()
		var err error
		if step.trouble != nil || step.healed {
			r.trouble(step.trouble)
		} else if err = r.offer(step.revision, step.revision, envoyrules.File{Data: []byte(step.data)}); err != nil {
			refusals++
		}
		s := r.now()
		if !strings.Contains(s.String(), step.says) || s.Revision != step.inForce || s.Loads != step.loads || s.Refusals != refusals ||
			strings.Contains(s.String(), "source:") != strings.Contains(step.says, "source:") {
			t.Errorf("%s: %v; %q, want %q; %+v", step.why, err, s, step.says, s)
		}
		refused := step.line > 0 || step.refuse != nil
		if s.InForce() != (step.loads > 0) || (s.Refused != nil) != refused {
			t.Fatalf("%s: %+v", step.why, s)
		}
		if err != nil && !errors.Is(s.Refused, err) {
			t.Errorf("%s: refused: %v, not %v", step.why, s.Refused, err)
		}
		place, ok := errors.AsType[*rules.Error](s.Refused)
		if step.line > 0 && (!ok || place.Line != step.line || place.Column != step.column) {
			t.Errorf("%s: refused at %+v", step.why, place)
		}
		if err == nil && step.data != "" {
			digest := natssource.Digest([]byte(step.data))
			if s.Loaded.Before(before) || s.Rules != 1 || s.Digest != digest {
				t.Errorf("%s: %+v", step.why, s)
			}
		}
	}
	equal(t, "the checker's revision, which only grows", r.checker.Load().Revision(), 6)
}

// TestAParserThatPanics does not end the process.
func TestAParserThatPanics(t *testing.T) {
	var refuse error
	r := newLocal(&refuse)
	must(t, r.offer(1, 1, envoyrules.File{Data: []byte(good)}))
	r.read = func(...envoyrules.File) (*rules.Set, []envoyrules.Warning, error) { panic("what is this") }
	err := r.offer(2, 2, envoyrules.File{Data: []byte(good)})
	if err == nil || !strings.Contains(err.Error(), "what is this") {
		t.Error(err)
	}
	if s := r.now(); s.Revision != 1 || s.Refused == nil {
		t.Errorf("%+v", s)
	}
}

// daily is a set of one rule, whose window no test outlasts.
func daily(limit int) string {
	return fmt.Sprintf("rules:\n  - name: per-user\n    key: [user]\n    limit: %d/day\n", limit)
}

// reportedRevision is the revision in the reports of a checker that takes its rules from a source.
func reportedRevision(t *testing.T, s ruleSource) uint64 {
	t.Helper()
	var refuse error
	r := newLocal(&refuse)
	must(t, s.begin(r))
	watching := begin(func(ctx context.Context) { s.watch(ctx, r) })
	defer watching.end()
	daemontest.Eventually(t, "rules come", func() bool { return r.checker.Load() != nil })
	return r.checker.Load().Revision()
}

// TestMovingBetweenFileAndBucket: while some checkers read the one and some the other, what was
// written later has the higher revision, by which aggregators go; both ways, and however often the
// bucket has been written.
func TestMovingBetweenFileAndBucket(t *testing.T) {
	conn := serverstest.Connect(t, serverstest.JetStream(t).URL())
	ofBucket := func() uint64 {
		l := linkFrom(t, func() (*nats.Conn, error) { return conn, nil })
		return reportedRevision(t, newBucket(Options{}, l, nil))
	}
	path := daemontest.File(t, "rules.yaml", daily(1))
	ofFile := func(modified time.Time) uint64 {
		must(t, os.Chtimes(path, time.Time{}, modified))
		f, err := openFiles(path)
		must(t, err)
		return reportedRevision(t, f)
	}
	before := ofFile(time.Now().Add(-time.Second))
	rulesIn, err := natssource.New(conn, DefaultNamespace, natssource.Options{})
	must(t, err)
	_, err = rulesIn.Put(t.Context(), []byte(daily(2)), 0)
	must(t, err)
	bucket, again := ofBucket(), ofBucket()
	if after := ofFile(time.Now().Add(time.Second)); !(before < bucket && bucket < after) {
		t.Errorf("the file's %d, then the bucket's %d, then the file's %d", before, bucket, after)
	}
	equal(t, "another checker with the same set", again, bucket)
}

// TestRevisionOfAFile is its time, and never 0, which would be none.
func TestRevisionOfAFile(t *testing.T) {
	for want, at := range map[uint64]time.Time{
		1_763_610_000_123: time.UnixMilli(1_763_610_000_123),
		1:                 time.Unix(-5, 0),
	} {
		equal(t, at, new(ruleFiles).revisionOf([]filewatch.File{{Modified: at}, {}}), want)
	}
}

// TestAFileIsFollowed: what it holds comes into force, and that it is gone is known.
func TestAFileIsFollowed(t *testing.T) {
	path := daemontest.File(t, "rules.yaml", daily(1))
	f, err := openFiles(path)
	must(t, err)
	var refuse error
	r := newLocal(&refuse)
	must(t, f.begin(r))
	watching := begin(func(ctx context.Context) { f.watch(ctx, r) })
	defer watching.end()
	must(t, os.WriteFile(path, []byte(daily(2)), 0o600))
	daemontest.Eventually(t, "the new limit is in force", func() bool {
		return r.checker.Load().Rules().Rules()[0].Limit == 2
	})
	must(t, os.Remove(path))
	daemontest.Eventually(t, "it is known that the file is gone", func() bool {
		why := r.now().Trouble
		return errors.Is(why, os.ErrNotExist) && strings.HasPrefix(why.Error(), "load rules: ")
	})
}

// TestADirectoryIsFollowed: its files come into force together, or none of them; one that is added
// or removed is a change, too.
func TestADirectoryIsFollowed(t *testing.T) {
	dir := t.TempDir()
	file := func(name, domain string) string {
		path := filepath.Join(dir, name)
		must(t, os.WriteFile(path, []byte("domain: "+domain+"\ndescriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 1}}]\n"), 0o600))
		return path
	}
	one := file("one.yaml", "d")
	f, err := openFiles(dir)
	must(t, err)
	var refuse error
	r := newLocal(&refuse)
	must(t, f.begin(r))
	watching := begin(func(ctx context.Context) { f.watch(ctx, r) })
	defer watching.end()
	has := func(names ...string) func() bool {
		return func() bool {
			var all []string
			for _, rule := range r.checker.Load().Rules().Rules() {
				all = append(all, rule.Name)
			}
			return slices.Equal(all, names)
		}
	}
	if !has("d|a")() {
		t.Error("the first file is not in force")
	}
	two := file("two.yaml", "e")
	daemontest.Eventually(t, "both are in force", has("d|a", "e|a"))
	file("one.yaml", "new")
	bad := file("bad.yaml", "''")
	daemontest.Eventually(t, "the bad one is refused", func() bool {
		refused := r.now().Refused
		return refused != nil && strings.HasPrefix(refused.Error(), bad+":1:9: domain: ")
	})
	must(t, os.Remove(bad))
	daemontest.Eventually(t, "without it, the others are in force", has("new|a", "e|a"))
	must(t, os.Remove(two))
	daemontest.Eventually(t, "a removed one is not", has("new|a"))
	must(t, os.Remove(one))
	daemontest.Eventually(t, "that none is left is known", func() bool { return r.now().Trouble != nil })
	if !has("new|a")() {
		t.Error("the last good rules are gone")
	}
}

// TestShadow: rules of every kind may be put in shadow, deny nobody then, and still replace others.
func TestShadow(t *testing.T) {
	const text = `rules:
- {name: strict, key: [user], limit: 1/day, enforcement: strict}
- {name: queued, key: [user], limit: 1/day, on_limit: queue, max_wait: 1s}
- {name: listed, key: [user], limit: 1/day, deny: {user: [bob]}, on_missing: deny}
- {name: leaky, key: [user], limit: 1/day, algorithm: leaky_bucket}
- {name: replaced, key: [], limit: 1/day}
- {name: replacing, match: {user: "*"}, key: [user], limit: 100/day, replaces: [replaced]}
- {name: free, match: {user: bob}, unlimited: true}
`
	set, _, err := inShadow(envoyrules.ReadFiles)(envoyrules.File{Data: []byte(text)})
	must(t, err)
	c, err := check.New(check.Options{Rules: set})
	must(t, err)
	c.SetBlocks([]check.Block{{Rule: "replacing", Key: "bob", Until: time.Now().Add(time.Hour)}})
	attributes := identity.Attributes{{Name: "user", Value: "bob"}}
	for i := range 3 {
		d := c.Check(attributes, 1)
		if !d.Allowed || d.Shadow == "" {
			t.Errorf("check %d: %+v", i, d)
		}
	}
	for _, r := range set.Find(nil, attributes) {
		if r.Name == "replaced" {
			t.Error("a rule in shadow does not replace another one in it")
		}
	}
}
