package accesslog

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

// logAt returns a log of entries at these seconds, each with a client of its own that says which it
// is.
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

// Hits come in the order of time, and each in the second of its stamp, whatever the order of the
// file. A few hundred of one second fill it evenly. One seed makes one plan.
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
	if again := plan(t, log, PlanOptions{Seed: 1, Speed: 1}); !slices.Equal(p.Hits, again.Hits) {
		t.Error("one seed gave two plans")
	}
	if other := plan(t, log, PlanOptions{Seed: 2, Speed: 1}); slices.Equal(p.Hits, other.Hits) {
		t.Error("two seeds gave one plan")
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

// The members of a group are one client, and no hit moves for it.
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

// Silences are cut to exactly what was asked for, or by whole windows only. All others stay as they
// were, and so does the order.
func TestPlanCutsSilences(t *testing.T) {
	log := logAt(100, 100, 100, 4_000, 4_001, 4_012, 9_000_000, 9_000_004)
	const longest, window = 10 * time.Second, 7 * time.Second
	whole := plan(t, log, PlanOptions{Seed: 3, Speed: 1})
	cut := plan(t, log, PlanOptions{Seed: 3, Speed: 1, MaxGap: longest})
	inPhase := plan(t, log, PlanOptions{Seed: 3, Speed: 1, MaxGap: longest, Whole: window})
	for i := 1; i < len(whole.Hits); i++ {
		gap := func(p Plan) time.Duration { return p.Hits[i].At - p.Hits[i-1].At }
		if gap(cut) != min(gap(whole), longest) || gap(inPhase) >= longest+window ||
			gap(inPhase) < gap(cut) || (inPhase.Hits[i].At-whole.Hits[i].At)%window != 0 ||
			whole.Hits[i].Client != cut.Hits[i].Client {
			t.Errorf("hit %d: %v after the one before; cut %v, by whole windows %v", i, gap(whole), gap(cut), gap(inPhase))
		}
	}
	if whole.Span != whole.Length() || whole.Kept != whole.Span || cut.Span != whole.Span || cut.Kept != cut.Length() {
		t.Errorf("whole: %v, %v of %v; cut: %v, %v of %v",
			whole.Length(), whole.Kept, whole.Span, cut.Length(), cut.Kept, cut.Span)
	}
	if cut.Start != whole.Start || cut.Hits[0].At != 0 {
		t.Errorf("starts %v and %v, first hit at %v", cut.Start, whole.Start, cut.Hits[0].At)
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
	if len(one.Hits) != 1 || one.Length() != 0 || one.Span != 0 || one.Start.Unix() != 86_400 {
		t.Errorf("of one hit: %+v", one)
	}
}

func TestPlanRefuses(t *testing.T) {
	for _, test := range []struct {
		log     Log
		options PlanOptions
		want    string
	}{
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
