package envoyquota

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/offpath-io/offpath/pkg/envoyquota/internal/shares"
)

func TestAssign(t *testing.T) {
	for _, c := range []struct {
		name  string
		grant shares.Grant
		want  assignment
	}{
		{"nothing", shares.Grant{}, assignment{kind: denyAll}},
		{"whole hits a second", shares.Grant{Burst: 25, Rate: 100}, assignment{bucketOf, 25, 100, 1}},
		{"half hits", shares.Grant{Burst: 1, Rate: 2.5}, assignment{bucketOf, 1, 5, 2}},
		{"one in ten seconds", shares.Grant{Burst: 1, Rate: 0.1}, assignment{bucketOf, 1, 1, 10}},
		{"a third, as far as can be told", shares.Grant{Burst: 1, Rate: 1. / 3}, assignment{bucketOf, 1, 10, 30}},
		{"no rate: a burst an hour", shares.Grant{Burst: 40}, assignment{bucketOf, 40, 40, 3600}},
		{"more than 32 bits hold", shares.Grant{Burst: math.MaxInt64, Rate: 1e15}, assignment{bucketOf, math.MaxUint32, math.MaxUint32, 1}},
	} {
		if got := newAssignment(c.grant); got != c.want {
			t.Errorf("%s: got %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestAssignNeverExceedsTheGrant(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := shares.Grant{Burst: rapid.Int64Range(1, 1e9).Draw(t, "burst"), Rate: math.Exp(rapid.Float64Range(-7, 20).Draw(t, "log rate"))}
		a := newAssignment(g)
		rate := float64(a.tokens) / float64(a.seconds)
		if rate > g.Rate*(1+1e-9) || g.Rate < 1e9 && rate < g.Rate*(1-roundingLoss)-1./longestFill {
			t.Fatalf("%+v is told as %+v, %v per second", g, a, rate)
		}
		if a.most == 0 || a.tokens == 0 || a.seconds < 1 || a.strategy().Validate() != nil {
			t.Fatalf("%+v is told as %+v, which Envoy refuses: %v", g, a, a.strategy().Validate())
		}
	})
}

// Envoy fills a bucket anew whatever its version if it is told so, and keeps it as it is otherwise.
func TestActionsFillABucketInAllVersions(t *testing.T) {
	id := bucketID("user", "kristie")
	for _, refills := range []bool{false, true} {
		e := newSimEnvoy(refills)
		e.request(simStart, id)
		begin, same := assignment{bucketOf, 10, 10, 3600}, assignment{bucketOf, 10, 10, 3600}
		drain := func() (n int) {
			for passes := true; passes; n++ {
				passes, _ = e.request(simStart, id)
			}
			return n - 1
		}
		e.obey(simStart, begin.actions(nil, id, assignment{}, true, time.Minute))
		if n := drain(); n != 10 {
			t.Errorf("refills %v: %d pass of 10", refills, n)
		}
		e.obey(simStart, same.actions(nil, id, begin, false, time.Minute))
		if n := drain(); n != 0 {
			t.Errorf("refills %v: a renewal let %d pass", refills, n)
		}
		e.obey(simStart, same.actions(nil, id, begin, true, time.Minute))
		if n := drain(); n != 10 {
			t.Errorf("refills %v: a new grant of 10 let %d pass", refills, n)
		}
		faster := assignment{bucketOf, 10, 10, 1}
		e.obey(simStart, faster.actions(nil, id, same, false, time.Minute))
		if got := e.buckets[bucketName(id.Bucket)].tokens.rate; got != 10 {
			t.Errorf("refills %v: the rate is %v, and was to be 10", refills, got)
		}
	}
}
