package torture

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/offpath-io/offpath/pkg/aggregate"
)

// A few schedules are free of violations, and meet every kind of fault.
func TestNothingIsViolated(t *testing.T) {
	seeds, rounds := 12, 3
	if testing.Short() {
		seeds, rounds = 6, 2
	}
	r := Run(t.Context(), Options{Seed: 22, Seeds: seeds, Rounds: rounds})
	for _, v := range r.Violations {
		t.Errorf("%v\n%s", v, v.Command)
	}
	for _, kind := range kinds() {
		if r.Faults[kind] == 0 {
			t.Errorf("the schedules were too tame: no %s", kind)
		}
	}
	if r.Seeds != seeds || r.AllFaults < int64(30*seeds) || r.Admitted < r.Requests/4 ||
		r.StrictHits < int64(500*seeds) || r.Calm < int64(3000*seeds) ||
		r.Late == 0 || r.LostByKills == 0 || r.LostByStore == 0 {
		t.Errorf("the schedules were too tame: %+v", r)
	}
}

// Each planted defect is found by the invariant that it violates.
func TestDefectsAreFound(t *testing.T) {
	for _, test := range []struct {
		defect    mutation
		invariant string
	}{
		{forgetsMarks, "conservation"},
		{countsTwice, "conservation"},
		{losesSilently, "conservation"},
		{hidesLosses, "losses"},
		{grantsNothing, "strict starves"},
		{strictAsAsync, "strict"},
		{limitsDoubled, "strict"},
		{limitsDoubled, "bound"},
		{deafToAlarms, "bound"},
		{neverRecovers, "recovery"},
		{breaksDown, "no panic"},
		{wrongFleetTime, "clock"},
	} {
		r := Run(t.Context(), Options{Seed: 3, Seeds: 3, Rounds: 1, mutation: test.defect})
		is := func(v Violation) bool { return v.Invariant == test.invariant }
		if !slices.ContainsFunc(r.Violations, is) {
			t.Errorf("defect %d violates %v, want %q", test.defect, r.Violations, test.invariant)
		}
	}
}

// The same seed gives the same result, to the byte, whatever runs beside it.
func TestTheSameSeedRepeats(t *testing.T) {
	var results [2]string
	for i := range results {
		r := Run(t.Context(), Options{Seed: 4, Seeds: 1 + i, Rounds: 1, mutation: deafToAlarms})
		r.Violations = slices.DeleteFunc(r.Violations, func(v Violation) bool { return v.Seed > 4 })
		data, err := json.Marshal(r.Violations)
		if err != nil || len(r.Violations) == 0 {
			t.Fatalf("%+v, %v", r, err)
		}
		results[i] = string(data)
	}
	if results[0] != results[1] {
		t.Errorf("%s\n%s", results[0], results[1])
	}
	one, _ := json.Marshal(Run(t.Context(), Options{Seed: 2, Rounds: 1}))
	two, _ := json.Marshal(Run(t.Context(), Options{Seed: 2, Rounds: 1}))
	if string(one) != string(two) {
		t.Errorf("%s\n%s", one, two)
	}
}

// Slices of time end where clocks say so that are all right within a margin: a hit that comes near
// an edge is counted where there is room, and never in a third slice.
func TestHitsNearAnEdge(t *testing.T) {
	const limit = 2
	for _, test := range []struct {
		name string
		hits [][2]int64 // the first and last slice of each
		want int64      // count of the last one
	}{
		{"within a slice", [][2]int64{{5, 5}, {5, 5}, {5, 5}}, 3},
		{"the old one has room", [][2]int64{{4, 4}, {4, 5}, {5, 5}, {5, 5}}, 2},
		{"the old one is full", [][2]int64{{4, 4}, {4, 4}, {4, 5}, {5, 5}, {5, 5}}, 3},
		{"before an edge", [][2]int64{{4, 4}, {4, 5}, {4, 5}, {4, 5}, {4, 5}}, 3},
		{"others are not lent", [][2]int64{{4, 4}, {6, 6}, {6, 6}, {6, 6}}, 3},
		{"time went back by a slice", [][2]int64{{5, 5}, {4, 4}, {4, 4}, {4, 5}, {4, 5}}, 3},
	} {
		t.Run(test.name, func(t *testing.T) {
			var c counts
			var got int64
			for _, h := range test.hits {
				got = c.add(h[0], h[1], limit)
			}
			if got != test.want {
				t.Errorf("the last hit is number %d of its slice, want %d", got, test.want)
			}
		})
	}
}

// In this one no key of a strict rule is asked for twice within the time of a permit.
func TestSparseRequestsDoNotStarve(t *testing.T) {
	for _, v := range Run(t.Context(), Options{Seed: 301631}).Violations {
		t.Errorf("%v\n%s", v, v.Command)
	}
}

// In these schedules the only aggregators that knew the time well died, and others that knew it to
// 0.2 to 0.5 s went on as the store's clock was set. Checkers end their slices by the time of
// before until they hear that it has moved, and follow then.
func TestTheFleetsTimeMoves(t *testing.T) {
	for _, seed := range []uint64{202545, 202851, 200782, 551294} {
		for _, v := range Run(t.Context(), Options{Seed: seed}).Violations {
			t.Errorf("%v\n%s", v, v.Command)
		}
	}
}

// In these schedules the store's clock was set while few aggregators knew the time: one stood still
// while it listened for the others; one that had become the keeper knew the time to 0.25 s only;
// one was still on its way from a bad first look to a better one; two that started heard another
// one, which they could not measure; one that started had stood still, and did not wait for the
// other one; and where all knew it badly, the step was recorded so late that checkers were still
// far off 5 s after the last fault. The fleet's time goes on all the same.
func TestTheFleetsTimeGoesOn(t *testing.T) {
	for _, seed := range []uint64{402434, 400251, 403049, 502982, 542318, 542508, 543486, 562508, 580552} {
		for _, v := range Run(t.Context(), Options{Seed: seed}).Violations {
			t.Errorf("%v\n%s", v, v.Command)
		}
	}
}

// In these schedules the store went back, or lost everything, when no aggregator that runs had seen
// what it had before, and nothing outside of the store remembers. Checkers tell. (In the last one
// the store lost all, and came back later as it was before: a checker that had been away meanwhile
// has nothing to tell.)
func TestLossesAreTold(t *testing.T) {
	for _, seed := range []uint64{532031, 532097, 532277, 566717} {
		r := Run(t.Context(), Options{Seed: seed})
		for _, v := range r.Violations {
			t.Errorf("%v\n%s", v, v.Command)
		}
		if r.LostByStore == 0 {
			t.Errorf("seed %d: nothing was lost", seed)
		}
	}
}

// The fleet's time has moved with the store's clock only if all that know it say so, and one of
// them has never been sure of another time.
func TestWhenTheFleetsTimeMoves(t *testing.T) {
	const set = 400 * ms
	type told struct{ time, err int64 }
	for _, test := range []struct {
		name  string
		tell  [][]told // by aggregator, one after the other
		moved bool
	}{
		{"nobody knows", [][]told{{}, {}}, false},
		{"one knew it badly", [][]told{{{9 * ms, 450 * ms}, {set, ms}}, {{}, {set, ms}}}, true},
		{"the best look counts", [][]told{{{9 * ms, 380 * ms}, {29 * ms, 375 * ms}, {set, ms}}}, true},
		{"that one is still sure of another time", [][]told{{{9 * ms, 450 * ms}, {200 * ms, ms}}}, false},
		{"all knew better", [][]told{{{0, 20 * ms}, {set, ms}}, {{0, ms}, {set, ms}}}, false},
		{"nothing counts after a contradiction", [][]told{{{0, 20 * ms}, {set, 450 * ms}, {set, ms}}}, false},
		{
			"it went there step by step",
			[][]told{{{0, 450 * ms}, {100 * ms, 150 * ms}, {200 * ms, 150 * ms}, {set, ms}}}, false,
		},
		{"one still knows better", [][]told{{{9 * ms, 450 * ms}, {set, ms}}, {{0, ms}}}, false},
		{"it began with the store's", [][]told{{{set, ms}}}, false},
	} {
		w := newWorld(Options{}, 1)
		w.crew = nil
		for _, tells := range test.tell {
			k := &worker{world: w, Worker: new(aggregate.Worker)}
			for _, said := range tells {
				k.time = said.time
				k.says(said.err + int64(clockError))
			}
			w.crew = append(w.crew, k)
		}
		if moved := w.hasMoved(set); moved != test.moved {
			t.Errorf("%s: %v", test.name, moved)
		}
	}
}
