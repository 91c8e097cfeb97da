package check

import "testing"

// TestOthersRate: others' rate is what passes while own hits pass too, told one step later.
func TestOthersRate(t *testing.T) {
	type step struct{ own, news int64 }
	again := func(n int, s step) (all []step) {
		for range n {
			all = append(all, s)
		}
		return all
	}
	for _, test := range []struct {
		why   string
		steps []step // 10 ms each
		want  float64
	}{
		{"nobody", nil, 0},
		{"alone", again(20, step{3, 0}), 0},
		{"seven hits of others, one own", again(40, step{1, 7}), 0.7},
		{"only others: a caller who is elsewhere now", again(40, step{0, 10}), 0},
		{"first others, then this one", append(append(again(20, step{0, 10}), step{10, 10}), again(20, step{10, 0})...), 0},
		{"a checker that dies", append(again(40, step{1, 7}), again(60, step{1, 0})...), 0.002},
	} {
		var o others
		at := noon
		for _, s := range test.steps {
			at += 10 * ms
			o.own += s.own
			o.hear(at, s.news)
		}
		if got := o.rate() * 1e6; got < test.want-0.001 || got > test.want+0.001 {
			t.Errorf("%s: %v hits a ms, want %v", test.why, got, test.want)
		}
	}
}
