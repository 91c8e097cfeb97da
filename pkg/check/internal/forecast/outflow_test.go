package forecast

import "testing"

// TestOthersRate: others' rate is what passes there while own hits pass too, known one step later.
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
		var o Outflow
		at := int64(noon)
		for _, s := range test.steps {
			at += 10 * ms
			o.Took(s.own)
			o.Observe(at, s.news)
		}
		got := o.rate() * 1e6
		near(t, test.why+": hits a ms", got, test.want, 0.001)
	}
}

// TestGap: how far apart own hits pass that take 10 ms to drain, if they cost 2.
func TestGap(t *testing.T) {
	for _, test := range []struct {
		why      string
		rate     float64 // others' hits a ms
		checkers int64
		want     int64 // ms
	}{
		{"alone", 0, 8, 10},
		{"others take half", 0.1, 8, 20},
		{"others take all: an equal share", 0.2, 4, 40},
		{"of a large fleet", 0.2, 80, 110},
	} {
		o := Outflow{hits: test.rate, span: float64(ms)}
		near(t, test.why+": ns", float64(o.Gap(10*ms, 5*ms, test.checkers)), float64(test.want*ms), 1)
	}
}
