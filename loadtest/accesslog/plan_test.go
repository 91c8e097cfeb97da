package accesslog

import (
	"bytes"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// logAt returns a log of entries at these seconds, each with a client of its own that says which it is.
func logAt(seconds ...int64) Log {
	var log Log
	for i, second := range seconds {
		log.Entries = append(log.Entries, Entry{Time: time.Unix(second, 0), Client: fmt.Sprint("client ", i), Line: i + 1})
	}
	return log
}

func plan(t testing.TB, log Log, o PlanOptions) Plan {
	t.Helper()
	p, err := log.Plan(o)
	must(t, err)
	return p
}

func sampleLog(t *testing.T) Log {
	t.Helper()
	log, err := Read(bytes.NewReader(sample(t)))
	must(t, err)
	return log
}

func TestPlanIsDeterministic(t *testing.T) {
	log := sampleLog(t)
	options := PlanOptions{Seed: 7, MaxGap: time.Minute, Speed: 3}
	one, two := plan(t, log, options), plan(t, log, options)
	if !reflect.DeepEqual(one, two) {
		t.Error("one seed gave two plans")
	}
	options.Seed++
	if reflect.DeepEqual(one.Hits, plan(t, log, options).Hits) {
		t.Error("two seeds gave one plan")
	}
}

// Hits come in the order of time, and each in the second of its stamp, whatever the order of the file. A few hundred of
// one second fill it evenly.
func TestPlanSpreads(t *testing.T) {
	seconds := []int64{1_000, 5, 999, 5, 86_400}
	for range 400 {
		seconds = append(seconds, 70)
	}
	log := logAt(seconds...)
	p := plan(t, log, PlanOptions{Seed: 1, Speed: 1})
	if len(p.Hits) != len(seconds) || len(p.Clients) != len(seconds) || p.Hits[0].At != 0 {
		t.Fatalf("%d hits of %d clients, the first at %v", len(p.Hits), len(p.Clients), p.Hits[0].At)
	}
	var quarters [4]int
	for i, hit := range p.Hits {
		moment := p.Start.Add(hit.At)
		if i > 0 && hit.At < p.Hits[i-1].At {
			t.Errorf("hit %d is before the one before", i)
		}
		if entry := log.Entries[hit.Client]; moment.Unix() != entry.Time.Unix() || p.Clients[hit.Client] != entry.Client {
			t.Errorf("%s is hit at %v, logged as %v", p.Clients[hit.Client], moment, entry.Time)
		}
		if moment.Unix() == 70 {
			quarters[moment.Nanosecond()/250_000_000]++
		}
	}
	for _, count := range quarters { // 100 each, with a deviation of 9
		if count < 60 || count > 140 {
			t.Errorf("the quarters of a second have %v hits", quarters)
		}
	}
}

// Those whom a group holds are one client, and no hit moves for it.
func TestPlanGroups(t *testing.T) {
	log := logAt(10, 20, 30, 40, 50)
	for i, client := range []string{"a1", "b1", "a2", "a1", "c"} {
		log.Entries[i].Client = client
	}
	asked := 0
	group := func(client string) string { asked++; return client[:1] }
	p := plan(t, log, PlanOptions{Speed: 1, Group: group})
	if want := []string{"a", "b", "c"}; !slices.Equal(p.Clients, want) || asked != 4 {
		t.Errorf("clients %q, want %q; asked %d times, want 4", p.Clients, want, asked)
	}
	alone := plan(t, log, PlanOptions{Speed: 1})
	if want := []string{"a1", "b1", "a2", "c"}; !slices.Equal(alone.Clients, want) || alone.Hits[3].Client != 0 {
		t.Errorf("without groups: %+v", alone)
	}
	for i, want := range []int{0, 1, 0, 0, 2} {
		if p.Hits[i].Client != want || p.Hits[i].At != alone.Hits[i].At {
			t.Errorf("hit %d: client %d at %v, want %d at %v", i, p.Hits[i].Client, p.Hits[i].At, want, alone.Hits[i].At)
		}
	}
}

// Silences are cut to exactly what was asked for, all others stay exactly as they were, and so does the order.
func TestPlanCutsSilences(t *testing.T) {
	log := logAt(100, 100, 100, 4_000, 4_001, 4_012, 9_000_000, 9_000_004)
	const longest = 10 * time.Second
	whole := plan(t, log, PlanOptions{Seed: 3, Speed: 1})
	cut := plan(t, log, PlanOptions{Seed: 3, Speed: 1, MaxGap: longest})
	gapsCut := 0
	for i := 1; i < len(whole.Hits); i++ {
		before, after := whole.Hits[i].At-whole.Hits[i-1].At, cut.Hits[i].At-cut.Hits[i-1].At
		if before > longest {
			gapsCut++
		}
		if after != min(before, longest) || whole.Hits[i].Client != cut.Hits[i].Client {
			t.Errorf("hit %d: %v after the one before, and with silences cut %v", i, before, after)
		}
	}
	if gapsCut != 3 || cut.GapsCut != gapsCut || whole.GapsCut != 0 {
		t.Errorf("cut %d silences of %d", cut.GapsCut, gapsCut)
	}
	longestGap := whole.Hits[6].At - whole.Hits[5].At
	if cut.LongestGap != longestGap || whole.LongestGap != longestGap {
		t.Errorf("longest silence %v and %v, want %v", cut.LongestGap, whole.LongestGap, longestGap)
	}
	if whole.Span != whole.Length() || whole.Kept != whole.Span || cut.Span != whole.Span || cut.Kept != cut.Length() {
		t.Errorf("whole: %v, %v of %v; cut: %v, %v of %v",
			whole.Length(), whole.Kept, whole.Span, cut.Length(), cut.Kept, cut.Span)
	}
	if cut.Start != whole.Start || cut.Hits[0].At != 0 {
		t.Errorf("starts %v and %v, first hit at %v", cut.Start, whole.Start, cut.Hits[0].At)
	}
}

// TestPlanKeepsPhases: silences are cut by whole windows only, so every hit stays where it was against
// the window's edges.
func TestPlanKeepsPhases(t *testing.T) {
	const window = 10 * time.Second
	log := sampleLog(t)
	whole := plan(t, log, PlanOptions{Speed: 1})
	cut := plan(t, log, PlanOptions{Speed: 1, MaxGap: 30 * time.Second, Whole: window})
	if cut.GapsCut == 0 || cut.Kept >= whole.Kept {
		t.Fatalf("%d gaps cut, %v of %v left", cut.GapsCut, cut.Kept, whole.Kept)
	}
	for i := range cut.Hits {
		if cut.Hits[i].At%window != whole.Hits[i].At%window {
			t.Fatalf("hit %d is moved from %v to %v", i, whole.Hits[i].At, cut.Hits[i].At)
		}
		if i > 0 && cut.Hits[i].At-cut.Hits[i-1].At >= 40*time.Second {
			t.Errorf("a silence of %v is left", cut.Hits[i].At-cut.Hits[i-1].At)
		}
	}
}

// The speed divides what is left when silences are cut.
func TestPlanSpeed(t *testing.T) {
	log := logAt(0, 1, 2, 50, 1_000_000)
	options := PlanOptions{Seed: 2, Speed: 1, MaxGap: time.Minute}
	normal := plan(t, log, options)
	for _, speed := range []float64{0.25, 1, 2, 1000, 1e300} {
		options.Speed = speed
		p := plan(t, log, options)
		for i, hit := range p.Hits {
			want := float64(normal.Hits[i].At) / speed
			if off := want - float64(hit.At); off < 0 || off >= 1 || hit.Client != normal.Hits[i].Client {
				t.Errorf("speed %v: hit %d at %v, want %v ns", speed, i, hit.At, want)
			}
		}
		if p.Span != normal.Span || p.Kept != normal.Kept || p.Length() != p.Hits[4].At {
			t.Errorf("speed %v: span %v, kept %v, length %v", speed, p.Span, p.Kept, p.Length())
		}
	}
}

// All of what a Duration can hold is kept, without overflow; and so is a single hit.
func TestPlanOfExtremes(t *testing.T) {
	const most = int64(math.MaxInt64/time.Second) - 1
	whole := plan(t, logAt(most, 0), PlanOptions{Speed: 1})
	cut := plan(t, logAt(most, 0), PlanOptions{Speed: 0.5, MaxGap: time.Hour})
	if whole.Length() < time.Duration(most-1)*time.Second || cut.Length() != 2*time.Hour {
		t.Errorf("lengths %v and %v", whole.Length(), cut.Length())
	}
	one := plan(t, logAt(86_400), PlanOptions{Speed: 2, MaxGap: time.Second})
	if len(one.Hits) != 1 || one.Length() != 0 || one.Span != 0 || one.LongestGap != 0 || one.Start.Unix() != 86_400 {
		t.Errorf("of one hit: %+v", one)
	}
}

func TestPlanRefuses(t *testing.T) {
	for _, test := range []struct {
		log     Log
		options PlanOptions
		want    string
	}{
		{logAt(1), PlanOptions{}, "speed 0: want a number above 0"},
		{logAt(1), PlanOptions{Speed: math.NaN()}, "speed NaN"},
		{logAt(1), PlanOptions{Speed: math.Inf(1)}, "speed +Inf"},
		{logAt(1), PlanOptions{Speed: math.Inf(-1)}, "speed -Inf"},
		{logAt(1), PlanOptions{Speed: 1, MaxGap: -1}, "silence -1ns"},
		{Log{}, PlanOptions{Speed: 1}, "no entries"},
		{logAt(0, math.MaxInt64/int64(time.Second)), PlanOptions{Speed: 1}, "line 1 and line 2 are more than 292 years apart"},
		{logAt(0, 1e9), PlanOptions{Speed: 0.1}, "more than 292 years"},
	} {
		p, err := test.log.Plan(test.options)
		if err == nil || !strings.Contains(err.Error(), test.want) || !strings.HasPrefix(err.Error(), "plan replay: ") ||
			p.Hits != nil {
			t.Errorf("%+v: %v, want %q", test.options, err, test.want)
		}
	}
}
