package limits

import (
	"reflect"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/window"
)

// What is remembered of the highest revision is its burst, too.
func TestRevisionsRememberBursts(t *testing.T) {
	var r Revisions
	list := []storage.Rule{{Name: "r", Limit: 10, Burst: 5, Revision: 2}}
	r.Apply(list, 1)
	list[0] = storage.Rule{Name: "r", Limit: 20, Burst: 9, Revision: 1}
	if r.Apply(list, 2); list[0].Limit != 10 || list[0].Burst != 5 {
		t.Errorf("%+v", list[0])
	}
}

// A rate that changes among the rules that are known drains from its own moment on, as one that is
// heard of does; what reports claim meanwhile leaves no trace, also once the rule is not known any
// more.
func TestKnownRatesHoldFromTheirMomentOn(t *testing.T) {
	const now, second = int64(1e18), int64(time.Second)
	shape := window.Shape{Length: time.Minute, Buckets: 60, Kind: window.Token}
	rule := func(limit int64, at int64) []storage.Rule {
		return []storage.Rule{{Name: "r", Shape: shape, Limit: limit, Burst: limit, Revision: uint64(at / 1e6)}}
	}
	var trusting, reported Revisions
	trusting.Trust(rule(1000, now), now)
	reported.Apply(rule(1000, now), now)
	hostile := rule(1, now)
	hostile[0].Revision = 1 << 62
	trusting.Apply(hostile, now+second)
	trusting.Trust(rule(500, now+2*second), now+2*second)
	want, got := rule(500, now+2*second), rule(7, now)
	reported.Apply(want, now+2*second)
	got[0].Loose = true
	trusting.Apply(got, now+3*second)
	if !reflect.DeepEqual(got, want) || len(got[0].Past) != 1 {
		t.Errorf("got %+v, want %+v", got, want)
	}
	trusting.Trust(nil, now+4*second)
	got = rule(20, now)
	trusting.Apply(got, now+4*second)
	if got[0].Limit != 20 || got[0].Past != nil {
		t.Errorf("not known any more: %+v", got)
	}
}
