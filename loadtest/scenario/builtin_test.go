package scenario

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// golden is what each built-in scenario is to be: a line for the run, and one for each of its rules
// and streams, unless they are those of the run before. A stream's are its keys, its route, and its
// phases: how long each is and how many hits per second come in it, for all keys together.
const golden = `
steady:                          warm-up 2s, 20s long, 8 checkers, 2 aggregators, flush 50ms, load 5
    rule steady                  1000 per 1s, sliding, 1 bucket
    a: 1 keys                    random; always 5000
surge:                           warm-up 2s, 20s long, 8 checkers, 2 aggregators, flush 50ms, load 15
    rule surge                   1000 per 1s, sliding, 1 bucket
    a: 1 keys                    random; 2s to 3s 500, 2s 15000
burst:                           warm-up 2s, 20s long, 8 checkers, 2 aggregators, flush 50ms, load 50
    rule burst                   1000 per 1s, sliding, 1 bucket
    a: 1 keys                    random; 7 times (50ms 50000, 450ms 0), 50ms 50000, 450ms to 1.45s 0
ramp:                            warm-up 2s, 20s long, 8 checkers, 2 aggregators, flush 50ms, load 5
    rule ramp                    1000 per 1s, sliding, 1 bucket
    a: 1 keys                    random; 22s 0 to 5000
zipf:                            warm-up 2s, 20s long, 8 checkers, 2 aggregators, flush 50ms, load 0
    rule zipf                    100 per 1s, sliding, 1 bucket
    a: 1000000 keys, zipf 1.1    random; always 20000
hop:                             warm-up 2s, 20s long, 8 checkers, 2 aggregators, flush 50ms, load 5
    rule hop                     1000 per 1s, sliding, 1 bucket
    a: 1 keys                    hop 200ms; always 5000
skew:                            warm-up 2s, 20s long, 8 checkers, 2 aggregators, flush 50ms, load 5
    rule skew                    1000 per 1s, sliding, 1 bucket
    a: 1 keys                    skew 90%; always 5000
small:                           warm-up 1m0s, 2m0s long, 8 checkers, 2 aggregators, flush 50ms, load 2
    rule small                   10 per 1m0s, sliding, 1 bucket
    a: 1000 keys                 random; always 333.333
keywalk:                         warm-up 2s, 20s long, 8 checkers, 2 aggregators, flush 50ms, load 5
    rule keywalk                 1000 per 1s, sliding, 1 bucket
    a: 1 keys                    random; always 5000
    b: new keys                  random; always 5000
mixed:                           warm-up 20s, 20s long, 8 checkers, 2 aggregators, flush 50ms, load 0
    rule whole-service           1000 per 1s, sliding, 1 bucket
    rule per-user                50 per 1s, sliding, 1 bucket
    rule per-client              100 per 10s, sliding, 10 buckets
    rule logins                  10 per 1s, fixed
    a: 1 keys                    random; always 3000
    b: 10000 keys, zipf 1.1, rule 2  random; always 3000
    c: 20 keys, rule 3           hash; always 400
    d: 50 keys, rule 4           hop 200ms; always 1000
    e: new keys, rule 2          random; always 500
published-a (2 replicas, 50ms):  warm-up 2s, 2m0s long, 2 checkers, 2 aggregators, flush 50ms, load 5
    rule published-a             1000 per 1s, fixed
    a: 1 keys                    random; always 5000
published-a (2 replicas, 50ms, timer only):  warm-up 2s, 2m0s long, 2 checkers, 2 aggregators, flush 50ms, by the timer only, load 5
published-a (2 replicas, 10ms):  warm-up 2s, 2m0s long, 2 checkers, 2 aggregators, flush 10ms, load 5
published-a (4 replicas, 50ms):  warm-up 2s, 2m0s long, 4 checkers, 2 aggregators, flush 50ms, load 5
published-a (4 replicas, 50ms, timer only):  warm-up 2s, 2m0s long, 4 checkers, 2 aggregators, flush 50ms, by the timer only, load 5
published-a (4 replicas, 10ms):  warm-up 2s, 2m0s long, 4 checkers, 2 aggregators, flush 10ms, load 5
published-b (early flushes):     warm-up 2s, 20s long, 2 checkers, 2 aggregators, flush 200ms, load 1.6
    rule published-b             500 per 1s, sliding, 1 bucket
    a: 1 keys                    random; always 800
published-b (timer only):        warm-up 2s, 20s long, 2 checkers, 2 aggregators, flush 200ms, by the timer only, load 1.6
`

// text describes a scenario as golden does, without the alignment.
func (s *Scenario) text() []string {
	line := fmt.Sprintf("%s: warm-up %v, %v long, %d checkers, %d aggregators, flush %v",
		s.Title(), s.Warmup, s.Duration, s.Checkers, s.Aggregators, s.Flush)
	if s.TimerOnly {
		line += ", by the timer only"
	}
	lines := []string{fmt.Sprintf("%s, load %g", line, s.Load)}
	for _, r := range s.Rules {
		kind := "sliding, " + plural(r.Window.Buckets, "bucket")
		if r.Window.Fixed {
			kind = "fixed"
		}
		lines = append(lines, fmt.Sprintf("rule %s %d per %v, %s", r.Name, r.Limit, r.Window.Length, kind))
	}
	for i := range s.Streams {
		lines = append(lines, string(rune('a'+i))+": "+s.Streams[i].text())
	}
	return lines
}

func (s *Stream) text() string {
	keys := "new keys"
	if s.Keys > 0 {
		keys = fmt.Sprintf("%d keys", s.Keys)
	}
	if s.Zipf > 0 {
		keys += fmt.Sprintf(", zipf %g", s.Zipf)
	}
	if s.Rule > 0 {
		keys += fmt.Sprintf(", rule %d", s.Rule+1)
	}
	var phases []string
	for _, p := range s.Phases {
		phases = append(phases, p.text())
	}
	for n := len(phases)/2 - 1; n > 1; n-- { // a pair that comes n times
		pair := phases[:2]
		if slices.Equal(phases[:2*n], slices.Repeat(pair, n)) {
			phases = append([]string{fmt.Sprintf("%d times (%s, %s)", n, pair[0], pair[1])}, phases[2*n:]...)
			break
		}
	}
	return fmt.Sprintf("%s %v; %s", keys, s.Route, strings.Join(phases, ", "))
}

func (p Phase) text() string {
	length := p.Least.String()
	if p.Most > p.Least {
		length += " to " + p.Most.String()
	}
	if p.Least >= time.Hour && p.Most >= time.Hour && p.From == p.To {
		length = "always"
	}
	if p.From != p.To {
		return fmt.Sprintf("%s %.6g to %.6g", length, p.From, p.To)
	}
	return fmt.Sprintf("%s %.6g", length, p.From)
}

// TestBuiltins: the scenarios are what the golden lines say.
func TestBuiltins(t *testing.T) {
	var got, want []string
	for _, name := range Names() {
		list, _ := Builtin(name, Settings{})
		for i := range list {
			text := list[i].text()
			if i > 0 && slices.Equal(text[1:], list[i-1].text()[1:]) {
				text = text[:1]
			}
			got = append(got, text...)
		}
	}
	for line := range strings.Lines(strings.TrimSpace(golden)) {
		want = append(want, strings.Join(strings.Fields(line), " "))
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestSettings: what the command line says beats what a scenario says.
func TestSettings(t *testing.T) {
	all := Settings{
		Checkers: new(3), Aggregators: new(4), Limit: new(int64(50)), Window: new(10 * time.Second), Buckets: new(5),
		Load: new(2.0), Flush: new(70 * time.Millisecond), TimerOnly: new(true), Keys: new(6), Duration: new(time.Minute),
	}
	fleet := "3 checkers, 4 aggregators, flush 70ms, by the timer only"
	for name, want := range map[string][]string{
		"steady":  {"warm-up 20s, 1m0s long, " + fleet + ", load 2", "rule steady 50 per 10s, sliding, 5 buckets", "a: 6 keys random; always 60"},
		"surge":   {"rule surge 50 per 10s", "a: 6 keys random; 20s to 30s 15, 20s 60"},
		"burst":   {"a: 6 keys random; 7 times (50ms 60, 450ms 0), 50ms 60, 450ms to 10.45s 0"},
		"ramp":    {"a: 6 keys random; 1m20s 0 to 60"},
		"zipf":    {"rule zipf 50 per 10s, sliding, 5 buckets", "a: 6 keys, zipf 1.1 random; always 10"},
		"small":   {"warm-up 10s, 1m0s long, " + fleet + ", load 2", "rule small 50 per 10s, sliding, 5 buckets", "a: 6 keys random; always 60"},
		"keywalk": {"a: 6 keys random; always 60\nb: new keys random; always 60"},
		"mixed": {
			"1m0s long, " + fleet, "rule whole-service 1000 per 1s", "rule per-client 100 per 10s, sliding, 10 buckets",
			"a: 1 keys random; always 6000", "d: 50 keys, rule 4 hop 200ms; always 2000",
		},
		"published-a": {
			"published-a (3 replicas, 70ms, timer only): warm-up 20s, 1m0s long, " + fleet, "50 per 10s, fixed",
			"a: 6 keys random; always 60",
		},
		"published-b": {"published-b (timer only): warm-up 20s, 1m0s long, " + fleet, "50 per 10s, sliding", "a: 6 keys random; always 60"},
	} {
		list, _ := Builtin(name, all)
		if len(list) != 1 {
			t.Errorf("%s: %d runs, want the one that was asked for", name, len(list))
			continue
		}
		got := strings.Join(list[0].text(), "\n")
		for _, part := range want {
			if !strings.Contains(got, part) {
				t.Errorf("%s: want %q in\n%s", name, part, got)
			}
		}
	}
}

// TestVariants: how many runs of a published situation remain when some of it is said.
func TestVariants(t *testing.T) {
	for _, test := range []struct {
		name string
		s    Settings
		want int
	}{
		{"published-a", Settings{Checkers: new(3)}, 3},
		{"published-a", Settings{Flush: new(10 * time.Millisecond)}, 4},
		{"published-a", Settings{TimerOnly: new(true)}, 4},
		{"published-b", Settings{TimerOnly: new(true)}, 1},
	} {
		if list, _ := Builtin(test.name, test.s); len(list) != test.want {
			t.Errorf("%s with %+v: %d runs, want %d", test.name, test.s, len(list), test.want)
		}
	}
}
