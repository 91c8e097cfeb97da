package console

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/offpath-io/offpath/internal/status"
)

// played is a demand of one key: what it asked for in each of some minutes.
func played(perMinute ...float64) *demand {
	d := newDemand()
	for i, n := range perMinute {
		at := noon.Add(time.Duration(i+1) * time.Minute)
		d.note(at, []topKey{{keyID{"r", "k"}, n / 120}}, []topKey{{keyID{"r", "k"}, n / 120}})
		d.note(at.Add(5*time.Second), []topKey{{keyID{"r", "k"}, 1e9}}, nil) // the minute has been noted
	}
	return d
}

// TestWhatIf: what other limits would have denied, of windows of several lengths.
func TestWhatIf(t *testing.T) {
	for _, test := range []struct {
		why          string
		asked        []float64
		window       time.Duration
		limit        int64
		hits, denied float64
	}{
		{"a second's limit has 60 in a minute", []float64{100, 20, 90}, time.Second, 1, 210, 40 + 30},
		{"enough", []float64{100, 20, 90}, time.Second, 2, 210, 0},
		{"a minute's", []float64{100, 20, 90}, time.Minute, 50, 210, 50 + 40},
		{"two minutes': what is left of the one before", []float64{100, 20, 90}, 2 * time.Minute, 80, 210, 20 + 20 + 10},
		{"an hour's is used up", []float64{100, 20, 90}, time.Hour, 110, 210, 10 + 90},
		{"ten minutes' comes back", []float64{100, 0, 0, 0, 0, 0, 0, 0, 0, 0, 100}, 10 * time.Minute, 100, 200, 0},
	} {
		d := played(test.asked...)
		got := d.whatIf(status.Rule{Name: "r", WindowMS: test.window.Milliseconds(), Limit: 1000}, test.limit)
		if math.Abs(got.Hits-test.hits) > 0.1 || math.Abs(got.Denied-test.denied) > 0.1 || got.AsIs != 0 || got.Minutes != len(test.asked) {
			t.Errorf("%s: %+v", test.why, got)
		}
		if other := d.whatIf(status.Rule{Name: "s", WindowMS: 1000}, 1); other.Keys != 0 {
			t.Errorf("%s: of another rule %+v", test.why, other)
		}
	}
	d := newDemand()
	d.note(noon.Add(time.Minute), []topKey{{keyID{"r", "few"}, 10.2}, {keyID{"r", "hostile"}, 1e18}, {keyID{"r", "more"}, 10.21}}, nil)
	if most := d.whatIf(status.Rule{Name: "r", WindowMS: 60_000, Limit: 1}, 1).Most; len(most) != 3 ||
		most[0].Key != "hostile" || most[1].Key != "more" || most[2].Key != "few" {
		t.Errorf("not those denied most first: %+v", most)
	}
	day := played(10).whatIf(status.Rule{Name: "r", WindowMS: 86_400_000, Limit: 5}, 5)
	if !day.TooLong || day.AsIs != 5 || day.LimitedKeys != 1 || len(day.Most) != 1 {
		t.Errorf("%+v", day)
	}
}

// TestDemandIsBounded: an hour is remembered, of so many keys, and what nobody noted is nothing.
func TestDemandIsBounded(t *testing.T) {
	var many []topKey
	for i := range maxDemand + 10 {
		many = append(many, topKey{keyID{"r", fmt.Sprint(i)}, 1})
	}
	d := newDemand()
	d.note(noon.Add(time.Minute), many, nil)
	if len(d.keys) != maxDemand {
		t.Errorf("%d keys", len(d.keys))
	}
	d.note(noon.Add(59*time.Minute), nil, nil) // nobody noted the minutes between
	if w := d.whatIf(status.Rule{Name: "r", WindowMS: 1000}, 1); w.Minutes != 59 || w.Hits != 60*maxDemand {
		t.Errorf("%+v", w)
	}
	d.note(noon.Add(62*time.Minute), nil, nil)
	if w := d.whatIf(status.Rule{Name: "r", WindowMS: 1000}, 1); w.Minutes != 60 || w.Keys != 0 || len(d.keys) != 0 {
		t.Errorf("%+v", w)
	}
}
