package aggregate_test

import (
	"fmt"
	"testing"

	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/aggregate/memstore"
	"github.com/offpath-io/offpath/pkg/events"
)

// noteExcess notes what the last batch took beyond limits, by rule: hits beyond limit and band, and
// the largest count.
func noteExcess(last *string) func(*aggregate.Options) {
	return func(o *aggregate.Options) {
		o.OnApply = func(info aggregate.ApplyInfo) {
			*last = ""
			for _, e := range info.Excess {
				*last += fmt.Sprintf("%s %.2f %.2f ", info.Batch.Rules[e.Rule].Name, e.Hits, e.Most)
			}
		}
	}
}

// TestExcessOfBatches: OnApply reports, for each rule, the hits beyond the limit and a tenth of it,
// and the largest excess; none of loose rules. The limit is 10 per second; of a token bucket, the
// burst of 40.
func TestExcessOfBatches(t *testing.T) {
	var got string
	d := newFixture(t, memstore.New(), noteExcess(&got))
	loose := func(now int64) *events.Rule { r := perSecond(now); r.Name, r.Loose = "loose", true; return r }
	denied := func(now int64) *events.Rule { r := perSecond(now); r.Denied = true; return r }
	bucket := func(now int64) *events.Rule {
		return &events.Rule{
			Name: "tokens", Revision: 1, WindowMs: 1000, Buckets: 10, Limit: 10, Burst: 40,
			Algorithm: events.Algorithm_TOKEN_BUCKET, Newest: now / (100 * ms),
		}
	}
	for i, step := range []struct {
		why  string
		at   int64 // ms after start
		made int64 // the same, 0 for unknown
		rule func(int64) *events.Rule
		hits []own
		want string
	}{
		{"up to the limit", 100, 0, perSecond, []own{{"a", 0, 10}}, ""},
		{"one more is within the band", 110, 0, perSecond, []own{{"a", 0, 1}}, "per-second 0.00 0.10 "},
		{"two more are not", 120, 0, perSecond, []own{{"a", 0, 2}}, "per-second 2.00 0.30 "},
		{"those were counted then", 130, 0, perSecond, []own{{"a", 0, 1}}, "per-second 1.00 0.40 "},
		{"a key alone, far beyond", 140, 0, perSecond, []own{{"b", 0, 30}}, "per-second 19.00 2.00 "},
		{"two keys of a rule together", 150, 0, perSecond, []own{{"c", 0, 13}, {"d", 0, 21}}, "per-second 12.00 1.10 "},
		{"denied hits limit nothing", 160, 0, denied, []own{{"e", 0, 100}}, ""},
		{"a rule that lets them", 170, 0, loose, []own{{"e", 0, 100}}, ""},
		{"the old bucket counts for what is left of it: 14 × ½ and 6", 1498, 1500, perSecond,
			[]own{{"a", 1, 0}, {"a", 0, 6}}, "per-second 2.00 0.30 "},
		{"late news is read as of the newest report, whose hits are among them: 14 × ½ and 6, and 5 more", 1695, 1200, perSecond,
			[]own{{"a", 0, 5}}, "per-second 5.00 0.80 "},
		{"a full token bucket", 1700, 0, bucket, []own{{"a", 0, 40}}, ""},
		{"60 of 40 tokens, less the one that may have come back in this bucket", 1702, 0, bucket, []own{{"a", 0, 20}},
			"tokens 18.00 0.48 "},
	} {
		now := start + step.at*ms
		m := report(1, uint64(i+1), step.rule(now), step.hits...)
		if step.made > 0 {
			m.Made = start + step.made*ms
		}
		d.exchange(now, m)
		d.want(step.why, got, step.want)
	}
}

// What was given back is in no excess.
func TestExcessOfRefunds(t *testing.T) {
	var got string
	d := newFixture(t, memstore.New(), noteExcess(&got))
	d.exchange(start, asks(1, start, 110))
	d.want("110 of 100", got, "per-minute 8.00 0.10 ")
	d.exchange(start, asks(2, start, 0, settlement(start, 1, charge(perMinute(start), 0, 50), -20)))
	d.want("of which 20 are given back", got, "")
}

// TestNearKeys: OnApply names the keys of a batch whose counts have reached 80 % of their limit of
// 10, loose or not, and no others.
func TestNearKeys(t *testing.T) {
	got := ""
	d := newFixture(t, memstore.New(), func(o *aggregate.Options) {
		o.OnApply = func(info aggregate.ApplyInfo) {
			got = ""
			for _, n := range info.Near {
				got += fmt.Sprintf("%s %.2f ", info.Batch.Keys[n.Key].Text, n.Count)
			}
		}
	})
	loose := func(now int64) *events.Rule { r := perSecond(now); r.Name, r.Loose = "loose", true; return r }
	denied := func(now int64) *events.Rule { r := perSecond(now); r.Denied = true; return r }
	for i, step := range []struct {
		why  string
		at   int64 // ms after start
		rule func(int64) *events.Rule
		hits []own
		want string
	}{
		{"some of the limit", 100, perSecond, []own{{"a", 0, 7}, {"b", 0, 1}}, ""},
		{"one has reached it", 110, perSecond, []own{{"a", 0, 1}, {"b", 0, 1}}, "a 8.00 "},
		{"and is beyond", 120, perSecond, []own{{"a", 0, 4}, {"b", 0, 1}}, "a 12.00 "},
		{"of a loose rule", 130, loose, []own{{"c", 0, 9}}, "c 9.00 "},
		{"denied hits", 140, denied, []own{{"d", 0, 100}}, ""},
		{"the window has moved on", 2500, perSecond, []own{{"a", 0, 1}}, ""},
	} {
		now := start + step.at*ms
		d.exchange(now, report(1, uint64(i+1), step.rule(now), step.hits...))
		d.want(step.why, got, step.want)
	}
}
