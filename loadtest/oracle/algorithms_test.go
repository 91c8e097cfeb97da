package oracle

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/window"
)

// The judge goes by each algorithm's own arithmetic, on all hits.
func TestJudgeByEveryAlgorithm(t *testing.T) {
	shape := func(kind window.Kind) window.Shape {
		return window.Shape{Length: time.Second, Buckets: 10, Kind: kind}
	}
	for _, test := range []struct {
		name  string
		rule  rules.Rule
		steps []step
		want  Verdict
	}{
		{
			"a log keeps all of a bucket that touches the window", rules.Rule{Limit: 10, Window: shape(window.Log)},
			[]step{
				{50 * time.Millisecond, 10, true, 10, "these fit"},
				{1090 * time.Millisecond, 1, false, 10, "right, though all have left by their own times"},
				{1100 * time.Millisecond, 1, true, 1, "fits"},
			},
			Verdict{Hits: 12, Admitted: 11, OracleAdmitted: 11, Keys: 1, RollingWorst: 0, OracleRollingWorst: 0},
		},
		{
			"a token bucket", rules.Rule{Limit: 10, Burst: 100, Window: shape(window.Token)},
			[]step{
				{0, 100, true, 100, "all its tokens"},
				{50 * time.Millisecond, 1, true, 101, "wrong, but within the band of 2"},
				{60 * time.Millisecond, 2, true, 103, "one within, one not"},
				{600 * time.Millisecond, 1, false, 98, "within the band: 5 have drained since the end of their bucket"},
				{10 * time.Second, 1, false, 4, "wrong: almost empty"},
			},
			Verdict{
				Hits: 105, Admitted: 103, OracleAdmitted: 102, Keys: 1, Worst: 0.03, OracleWorst: 0, RollingWorst: 9.3, OracleRollingWorst: 9.1,
				WrongAllow: 1, WrongAllowExact: 3, FalseDenial: 1, FalseDenialExact: 2,
			},
		},
		{
			"a leaky bucket is exact", rules.Rule{Limit: 20, Burst: 5, Window: shape(window.Leaky)},
			[]step{
				{0, 1, true, 1, "the first"},
				{20 * time.Millisecond, 1, false, 0.6, "right: its turn is at 50 ms"},
				{50 * time.Millisecond, 1, true, 1, "right"},
				{60 * time.Millisecond, 3, true, 3.8, "wrong, each by 0.8 hits more; one is beyond a bucket's 2 and 1"},
				{900 * time.Millisecond, 1, false, 0, "wrong"},
			},
			Verdict{
				Hits: 7, Admitted: 5, OracleAdmitted: 3, Keys: 1, Worst: 3.8/3 - 1, OracleWorst: 1.0/3 - 1, RollingWorst: -0.75, OracleRollingWorst: -0.85,
				WrongAllow: 0, WrongAllowExact: 3, FalseDenialExact: 1, FalseDenial: 0,
			},
		},
	} {
		test.rule.Name, test.rule.Key = "r", []string{"k"}
		j := New(Options{Rules: []rules.Rule{test.rule}, From: noon, To: noon + int64(time.Hour)})
		for _, s := range test.steps {
			var count float64
			for range s.hits {
				count = j.Hit(noon+int64(s.at), 0, 0, s.allowed)
			}
			if math.Abs(count-s.count) > 1e-6 {
				t.Errorf("%s: after %v (%s) the count is %v, want %v", test.name, s.at, s.why, count, s.count)
			}
		}
		got := j.Verdict(noon + int64(time.Hour))
		got.Timeline, got.OracleTimeline = nil, nil
		for _, v := range []*float64{&got.Worst, &got.OracleWorst, &got.RollingWorst, &got.OracleRollingWorst} {
			*v = math.Round(*v*1e6) / 1e6
		}
		for _, v := range []*float64{&test.want.Worst, &test.want.OracleWorst} {
			*v = math.Round(*v*1e6) / 1e6
		}
		if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", test.want) {
			t.Errorf("%s:\ngot  %+v\nwant %+v", test.name, got, test.want)
		}
	}
}
