package check

import (
	"fmt"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/events"
)

// steps lets time pass in steps of 10 ms, and returns when a report of a key was made, after from.
func (f *fleet) reportOf(key string, from, until int64) (at int64) {
	f.t.Helper()
	before := len(f.tape.reports)
	for now := from; now <= until; now += 10 * ms {
		f.Step(now)
		for ; before < len(f.tape.reports); before++ {
			if _, ok := hits(f.tape.reports[before])[key]; ok {
				return now - from
			}
		}
	}
	f.t.Fatalf("no report of %q in %v", key, time.Duration(until-from))
	return 0
}

// TestQuietKeysWait: hits of a key far below its limit wait for a tenth of its window, or what QuietFor says.
func TestQuietKeysWait(t *testing.T) {
	for _, tt := range []struct {
		window, quietFor time.Duration
		limit            int64
		least, most      time.Duration
	}{
		{time.Second, 0, 1000, 90 * time.Millisecond, 100 * time.Millisecond},
		{time.Minute, 0, 1000, 5 * time.Second, 6 * time.Second},
		{time.Hour, 0, 1000, 9 * time.Second, 10 * time.Second},
		{time.Minute, 2 * time.Second, 1000, 1800 * time.Millisecond, 2 * time.Second},
		{time.Minute, time.Millisecond, 1000, 0, 50 * time.Millisecond},
		{500 * time.Millisecond, 0, 1000, 0, 50 * time.Millisecond}, // a tenth of it is no longer than the timer
		{time.Minute, 0, 10, 0, 50 * time.Millisecond},              // each hit counts
	} {
		f := newFleet(t, Options{QuietFor: tt.quietFor}, rule("r", tt.limit, tt.window, 1))
		f.welcomeOf(noon, 4)
		limiter(t, f.Checker, "r").CheckAt(noon, "k", 1)
		at := time.Duration(f.reportOf("k", noon, noon+20*second))
		if at < tt.least || at > tt.most {
			t.Errorf("%d in %v, QuietFor %v: reported after %v, want %v to %v", tt.limit, tt.window, tt.quietFor, at, tt.least, tt.most)
		}
	}
}

// TestQuietNoMore: an alarm, a check that brings the key near its limit, and the last flush end the wait.
func TestQuietNoMore(t *testing.T) {
	for name, end := range map[string]func(f *fleet, l *Limiter, now int64){
		"alarm far from the limit": func(f *fleet, l *Limiter, now int64) { f.alarm(now, 1, l, "k", 100) },
		"alarm near the limit":     func(f *fleet, l *Limiter, now int64) { f.alarm(now, 1, l, "k", 600) },
		"many hits": func(f *fleet, l *Limiter, now int64) {
			for range 70 {
				l.CheckAt(now, "k", 1)
			}
		},
	} {
		f := newFleet(t, Options{}, rule("r", 1000, time.Minute, 1))
		f.welcomeOf(noon, 4)
		l := limiter(t, f.Checker, "r")
		l.CheckAt(noon, "k", 1)
		for now := noon; now < noon+second; now += 10 * ms {
			f.Step(now)
		}
		if len(f.tape.reports) > 0 {
			t.Fatalf("%s: reported before", name)
		}
		end(f, l, noon+second)
		if at := f.reportOf("k", noon+second, noon+2*second); at > 40*ms {
			t.Errorf("%s: reported after %v", name, time.Duration(at))
		}
	}
}

// TestQuietHitsAreReportedOnce: waits that end early, late or twice lose and double nothing.
func TestQuietHitsAreReportedOnce(t *testing.T) {
	f := newFleet(t, Options{QuietFor: 500 * time.Millisecond}, rule("r", 1000, time.Minute, 60))
	f.welcomeOf(noon, 4)
	l := limiter(t, f.Checker, "r")
	keys := []string{"a", "b", "c"}
	charged, reported := 0, int64(0)
	for now := noon; now < noon+30*second; now += 10 * ms {
		if n := (now - noon) / (10 * ms); n%7 == 0 && now < noon+20*second {
			if l.CheckAt(now, keys[n%3], 1).Allowed {
				charged++
			}
		}
		if n := (now - noon) / (10 * ms); n%50 == 0 {
			f.alarm(now, 1, l, keys[n/50%3], 10)
		}
		before := len(f.tape.reports)
		f.Step(now)
		for _, r := range f.tape.reports[before:] {
			cells, age, total := []uint32{}, []int64{}, []uint64{}
			at := 0
			for _, n := range r.Hits.KeyCells {
				cells = append(cells, n)
				for range n {
					reported += int64(r.Hits.Value[at])
					age, total = append(age, r.Hits.Age[at]), append(total, r.Hits.Value[at])
					at++
				}
			}
			f.receive(now, events.KindRefresh, &events.Refresh{
				Epoch: r.Epoch, Sequence: r.Sequence, Generation: 1, KeyCells: cells, Age: age, Total: total,
			})
		}
	}
	if int64(charged) != reported || charged == 0 {
		t.Errorf("%d charged, %d reported", charged, reported)
	}
	if s := f.Stats().Rules[0]; s.Pending != 0 || s.InFlight != 0 {
		t.Errorf("left: %+v", s)
	}
}

// TestQuietKeysHoldUpNobody: however many keys are quiet, a key near its limit is reported at the next tick.
func TestQuietKeysHoldUpNobody(t *testing.T) {
	f := newFleet(t, Options{}, rule("r", 1000, time.Hour, 60))
	f.welcomeOf(noon, 8)
	l := limiter(t, f.Checker, "r")
	for i := range 20_000 {
		l.CheckAt(noon, fmt.Sprint(i), 1)
	}
	for range 600 {
		l.CheckAt(noon, "hot", 1)
	}
	if at := f.reportOf("hot", noon+ms, noon+second); at > 50*ms {
		t.Errorf("reported after %v", time.Duration(at))
	}
}

// TestACellWaitsOnceToLeave, however often it is reported.
func TestACellWaitsOnceToLeave(t *testing.T) {
	f, l := newFleetOf(t, 2, Options{HelloEvery: time.Hour, NoForecast: true}, 1000, time.Minute)
	for i := range int64(20) {
		l.CheckAt(noon+i*50*ms, "k", 1)
		f.Step(noon + (i+1)*50*ms)
		f.answer(noon+(i+1)*50*ms, i+1)
	}
	if n := f.behind.ageing.fresh.len() + f.behind.ageing.known.len(); n != 1 {
		t.Errorf("one cell waits %d times to leave", n)
	}
}
