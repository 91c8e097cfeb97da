package forecast

import "testing"

// TestUnits: requests of cost 10 under a limit that is ten times as high are decided as those of
// cost 1.
func TestUnits(t *testing.T) {
	one, ten := New(noon, of(2), 0.5, 1), New(noon, of(2), 0.5, 10)
	seen := make(map[bool]int)
	for at := fast; at <= 2*FullInterval; at += fast {
		now, total := noon+at, float64(at/fast)
		w := Window{Limit: 1000, Free: 35 - 35*float64(at)/float64(2*FullInterval), Freed: 1e-6}
		u := Update{
			Now: now + ms, Made: now, Round: fast, Bucket: 1, Admitted: Totals{40 * total},
			Denied: Totals{20 * total}, DeniedToo: true, News: 20,
		}
		var parts [2]float64
		var passes [2]bool
		for i, k := range []*Key{one, ten} {
			times := int64(1 + 9*i)
			hits := float64(times)
			k.Note(now-1, 30*times, 20*times)
			k.Reported(now, of(2))
			k.Observe(u.per(1/hits), of(2))
			o := k.Look(now+ms, w.per(1/hits), of(2))
			parts[i] = o.Part
			near(t, "room, in requests", o.Free/hits, one.room, 1e-6)
			passes[i] = o.Part >= 1 || k.Pass(o.Part, times)
		}
		near(t, "part that passes", parts[1], parts[0], 1e-6)
		if seen[passes[0]]++; passes[0] != passes[1] {
			t.Errorf("after %d ms a request passes: %v; one of cost 10: %v", at/ms, passes[0], passes[1])
		}
	}
	expect(t, seen[true] >= 3 && seen[false] >= 3, "passed or not: %v", seen)
}
