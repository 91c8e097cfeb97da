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
		_, err := New(o)
		expect(t, err != nil, "accepted: %+v", o)
	}
	_, err := New(Options{})
	expect(t, err != nil, "accepted: no rules")
	_, ok := ofYAML(t, Options{}, "rules: [{name: r, key: [user], limit: 1/second}]").Limiter("other")
	expect(t, !ok, "found a limiter for a rule that is not there")
}
