package torture

import (
	"encoding/json"
	"slices"
	"testing"
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
		{strictAsAsync, "strict"},
		{limitsDoubled, "strict"},
		{limitsDoubled, "bound"},
		{deafToAlarms, "bound"},
		{neverRecovers, "recovery"},
		{breaksDown, "no panic"},
		{wrongFleetTime, "clock"},
	} {
		r := Run(t.Context(), Options{Seed: 1, Seeds: 3, Rounds: 1, mutation: test.defect})
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
