package check

import (
	"testing"
	"time"
)

func TestBadOptionsAreRefused(t *testing.T) {
	set := parse(t, "rules: [{name: r, key: [user], limit: 1/second}]")
	for _, o := range []Options{
		{FlushEvery: time.Microsecond}, {FlushFloor: time.Microsecond}, {HelloEvery: time.Millisecond},
		{FlushEvery: 10 * time.Millisecond, FlushFloor: 11 * time.Millisecond},
		{MaxLiveKeys: -1}, {ReportKeys: -1}, {ReportKeys: 1 << 20}, {ReportTimeout: 1}, {DrainTimeout: -1},
		{StaleAfter: -1}, {StaleAfter: 11}, {ShareAfter: 2}, {ShareAfter: 301}, {OutageAfter: 9}, {ExpectCheckers: -1}, {QuietFor: -1},
	} {
		o.Rules = set
		if _, err := New(o); err == nil {
			t.Errorf("accepted: %+v", o)
		}
	}
	if _, err := New(Options{}); err == nil {
		t.Error("accepted: no rules")
	}
	if _, ok := ofYAML(t, Options{}, "rules: [{name: r, key: [user], limit: 1/second}]").Limiter("other"); ok {
		t.Error("found a limiter for a rule that is not there")
	}
}
