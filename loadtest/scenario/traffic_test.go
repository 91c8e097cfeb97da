package scenario

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"
)

func all(t *Traffic) []Hit {
	var list []Hit
	for {
		h, ok := t.Next()
		if !ok {
			return list
		}
		list = append(list, h)
	}
}

func builtinOf(t testing.TB, name string, s Settings) Scenario {
	t.Helper()
	list, ok := Builtin(name, s)
	if !ok || len(list) == 0 {
		t.Fatalf("no scenario %q", name)
	}
	return list[0]
}

func TestBuiltinsAreValidAndDeterministic(t *testing.T) {
	for _, name := range Names() {
		list, _ := Builtin(name, Settings{Duration: new(3 * time.Second)})
		if len(list) == 0 || Describe(name) == "" {
			t.Errorf("%s: %d runs, described as %q", name, len(list), Describe(name))
		}
		titles := make(map[string]bool)
		for i := range list {
			sc := &list[i]
			if err := sc.Validate(); err != nil {
				t.Errorf("%s: %v", sc.Title(), err)
			}
			if titles[sc.Title()] {
				t.Errorf("two runs are called %s", sc.Title())
			}
			titles[sc.Title()] = true
			sc.Warmup = min(sc.Warmup, time.Second)
			one, same, other := all(New(sc, 7)), all(New(sc, 7)), all(New(sc, 8))
			if !slices.Equal(one, same) || slices.Equal(one, other) {
				t.Errorf("%s: the hits are not of the seed", sc.Title())
			}
			if !slices.IsSortedFunc(one, func(a, b Hit) int { return int(a.At - b.At) }) {
				t.Errorf("%s: the hits are not in order of time", sc.Title())
			}
			end := int64(sc.Warmup + sc.Duration)
			for _, h := range one {
				if h.At < 0 || h.At >= end || h.Checker < 0 || int(h.Checker) >= sc.Checkers {
					t.Fatalf("%s: %+v of %v and %d checkers", sc.Title(), h, time.Duration(end), sc.Checkers)
				}
			}
		}
	}
}

// near reports whether a number of random events is plausible for its expectation: within five
// standard deviations. The seeds are fixed, so it is so always or never.
func near(got int, want float64) bool {
	return math.Abs(float64(got)-want) <= 5*math.Sqrt(want)+1
}

func TestRates(t *testing.T) {
	count := func(hits []Hit, from, to time.Duration) (n int) {
		for _, h := range hits {
			if h.At >= int64(from) && h.At < int64(to) {
				n++
			}
		}
		return n
	}
	const second = time.Second
	load := Settings{Limit: new(int64(1000)), Window: new(second)}
	for _, test := range []struct {
		name     string
		settings Settings
		from, to time.Duration
		want     float64
	}{
		{"steady", load, 0, 22 * second, 5000 * 22},
		{"ramp", load, 0, 11 * second, 11 * 1250},
		{"ramp", load, 11 * second, 22 * second, 11 * 3750},
		{"steady", Settings{Keys: new(10), Load: new(0.5), Duration: new(second)}, 0, 3 * second, 3 * 10 * 500},
	} {
		sc := builtinOf(t, test.name, test.settings)
		if n := count(all(New(&sc, 1)), test.from, test.to); !near(n, test.want) {
			t.Errorf("%s has %d hits from %v to %v, want about %v", test.name, n, test.from, test.to, test.want)
		}
	}

	burst := builtinOf(t, "burst", load)
	hits := all(New(&burst, 1))
	for i := range 8 {
		from := time.Duration(i) * 500 * time.Millisecond
		if n := count(hits, from, from+50*time.Millisecond); !near(n, 2500) {
			t.Errorf("burst %d has %d hits, want about 2,500", i, n)
		}
		if n := count(hits, from+50*time.Millisecond, from+500*time.Millisecond); n != 0 {
			t.Errorf("%d hits after burst %d", n, i)
		}
	}
}

// TestCosts: a load is in times the limit, whatever a request costs, and each cost is as frequent.
func TestCosts(t *testing.T) {
	sc := builtinOf(t, "steady", Settings{Cost: &Cost{1, 9}})
	var requests [10]int
	var hits, n int
	for _, h := range all(New(&sc, 1)) {
		requests[h.Cost]++
		hits, n = hits+int(h.Cost), n+1
	}
	if want := sc.Hits(); math.Abs(float64(hits)-want) > 0.02*want {
		t.Errorf("%d hits, want about %.0f", hits, want)
	}
	for cost, got := range requests[1:] {
		if math.Abs(float64(got)-float64(n)/9) > 5*math.Sqrt(float64(n)/9) {
			t.Errorf("%d of %d requests cost %d", got, n, cost+1)
		}
	}
}

func TestKeys(t *testing.T) {
	walk := builtinOf(t, "keywalk", Settings{Duration: new(time.Second)})
	traffic := New(&walk, 1)
	hits := all(traffic)
	seen := make(map[string]int)
	for _, h := range hits {
		seen[traffic.Text(h.Key)]++
	}
	once := 0
	for _, n := range seen {
		if n == 1 {
			once++
		}
	}
	if once != len(seen)-1 || !near(once, 15_000) || seen["a:0"] != len(hits)-once {
		t.Errorf("%d keys, %d of them hit once, the steady one %d times of %d", len(seen), once, seen["a:0"], len(hits))
	}

	zipf := builtinOf(t, "zipf", Settings{Duration: new(5 * time.Second)})
	traffic = New(&zipf, 1)
	per := make(map[int32]int)
	for _, h := range all(traffic) {
		per[h.Key]++
	}
	busiest := traffic.Busiest(2)
	if len(busiest) != 2 || per[busiest[0]] < per[busiest[1]] || per[busiest[1]] < per[1000] || per[busiest[0]] < 100*7 {
		t.Errorf("busiest are %v with %d and %d hits", busiest, per[busiest[0]], per[busiest[1]])
	}

	mixed := builtinOf(t, "mixed", Settings{Duration: new(time.Second)})
	mixed.Warmup = 0
	traffic = New(&mixed, 1)
	rules := make(map[int]map[string]bool)
	for _, h := range all(traffic) {
		r := traffic.Rule(h.Key)
		if rules[r] == nil {
			rules[r] = make(map[string]bool)
		}
		text := traffic.Text(h.Key)
		rules[r][text] = true
		if again := traffic.Text(h.Key); again != text {
			t.Fatalf("the text of key %d changes from %s to %s", h.Key, text, again)
		}
	}
	if len(rules) != 4 || len(rules[0]) != 1 || len(rules[2]) != 20 || len(rules[3]) != 50 {
		t.Errorf("keys by rule: %d %d %d %d", len(rules[0]), len(rules[1]), len(rules[2]), len(rules[3]))
	}
}

func TestRoutes(t *testing.T) {
	const n = 4
	route := func(r Route) (choose func(at time.Duration, key int32) int32) {
		sc := builtinOf(t, "steady", Settings{Checkers: new(n)})
		sc.Streams[0].Route = r
		router := New(&sc, 1).streams[0].route
		return func(at time.Duration, key int32) int32 { return router.choose(int64(at), key) }
	}
	counts := func(choose func(time.Duration, int32) int32) (c [n]int) {
		for i := range 10_000 {
			c[choose(time.Duration(i)*time.Millisecond, 5)]++
		}
		return c
	}
	if c := counts(route(Route{Kind: RoundRobin})); c != [n]int{2500, 2500, 2500, 2500} {
		t.Errorf("round robin: %v", c)
	}
	for i, c := range counts(route(Route{})) {
		if !near(c, 2500) {
			t.Errorf("random: %d hits for checker %d", c, i)
		}
	}
	c := counts(route(Route{Kind: Skew, Share: 0.9}))
	if !near(c[0], 9000) || !near(c[1], 333) || !near(c[3], 333) {
		t.Errorf("skew: %v", c)
	}

	hash := route(Route{Kind: Hash})
	places := make(map[int32]int)
	for key := range int32(1000) {
		first := hash(0, key)
		if hash(time.Hour, key) != first {
			t.Fatalf("hash: key %d moves", key)
		}
		places[first]++
	}
	for i, c := range places {
		if !near(c, 250) {
			t.Errorf("hash: %d keys at checker %d", c, i)
		}
	}

	hop := route(Route{Kind: Hop, Every: 200 * time.Millisecond})
	for i := range 10 {
		at := time.Duration(i) * 200 * time.Millisecond
		if hop(at, 5) != hop(at+199*time.Millisecond, 5) || (hop(at, 5)+1)%n != hop(at+200*time.Millisecond, 5) {
			t.Errorf("hop: from %d at %v to %d and %d", hop(at, 5), at, hop(at+199*time.Millisecond, 5), hop(at+200*time.Millisecond, 5))
		}
	}
}

func TestParseRoute(t *testing.T) {
	for text, want := range map[string]Route{
		"random": {}, "round_robin": {Kind: RoundRobin}, " hash ": {Kind: Hash},
		"hop 200ms":  {Kind: Hop, Every: 200 * time.Millisecond},
		"hop 3s 90%": {Kind: Hop, Every: 3 * time.Second, Share: 0.9}, "skew 90%": {Kind: Skew, Share: 0.9},
	} {
		got, err := ParseRoute(text)
		if err != nil || got != want {
			t.Errorf("%q: %+v, %v; want %+v", text, got, err, want)
		}
		if again, err := ParseRoute(got.String()); err != nil || again != want {
			t.Errorf("%q: %q is read as %+v, %v", text, got, again, err)
		}
	}
	for _, text := range []string{"", "any", "random 3", "hop", "hop 1us", "hop x", "hop 3s 90", "hop 3s 101%", "hop 3s 90% x", "skew", "skew 90", "skew 101%", "skew -1%", "skew NaN%"} {
		if r, err := ParseRoute(text); err == nil {
			t.Errorf("%q is taken as %+v", text, r)
		}
	}
}

func TestFixed(t *testing.T) {
	sc := builtinOf(t, "steady", Settings{Checkers: new(2)})
	sc.Streams, sc.Warmup = nil, 0
	sc.Fixed = &Fixed{
		Keys: []string{"x", "", "z"}, Route: Route{Kind: RoundRobin},
		Hits: []FixedHit{{0, 2}, {time.Second, 0}, {time.Second, 2}, {2 * time.Second, 1}},
	}
	traffic := New(&sc, 1)
	var got []string
	for _, h := range all(traffic) {
		got = append(got, fmt.Sprintf("%v %s %d", time.Duration(h.At), traffic.Text(h.Key), h.Checker))
	}
	want := []string{"0s z 1", "1s x 0", "1s z 1", "2s  0"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if busiest := traffic.Busiest(2); busiest[0] != 2 || len(busiest) != 2 {
		t.Errorf("busiest are %v", busiest)
	}
}
