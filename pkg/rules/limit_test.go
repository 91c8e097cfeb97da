package rules

import (
	"strings"
	"testing"
	"time"
)

func TestLimits(t *testing.T) {
	for _, tt := range []struct {
		text string
		hits int64
		span time.Duration
	}{
		{"15/second", 15, time.Second},
		{"15/s", 15, time.Second},
		{"1/minute", 1, time.Minute},
		{"1/m", 1, time.Minute},
		{"100/hour", 100, time.Hour},
		{"500/h", 500, time.Hour},
		{"3/day", 3, 24 * time.Hour},
		{"3/d", 3, 24 * time.Hour},
		{"7/week", 7, 7 * 24 * time.Hour},
		{"7/w", 7, 7 * 24 * time.Hour},
		{"3000/10m", 3000, 10 * time.Minute},
		{"20/90s", 20, 90 * time.Second},
		{"5/1ms", 5, time.Millisecond},
		{"100/1h30m", 100, 90 * time.Minute},
		{"1/1w2d3h4m5s6ms", 1, (9*24+3)*time.Hour + 4*time.Minute + 5*time.Second + 6*time.Millisecond},
		{"1/366d", 1, 366 * 24 * time.Hour},
		{"1000000000000000/s", 1e15, time.Second},
	} {
		hits, span, err := parseLimit(tt.text)
		if err != nil || hits != tt.hits || span != tt.span {
			t.Errorf("%s: %d per %v, %v; want %d per %v", tt.text, hits, span, err, tt.hits, tt.span)
		}
	}
}

func TestWrongLimits(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"15/fortnight", `unknown unit "fortnight" (want second, minute, hour, day, week or a span such as 10m)`},
		{"15/ second", `unknown unit " second"`},
		{"15/", `unknown unit ""`},
		{"15/s/s", `unknown unit "s/s"`},
		{"", "want hits per time"},
		{"15", "want hits per time"},
		{"/second", `"" is not a whole number of hits`},
		{"+1/second", `"+1" is not a whole number of hits`},
		{"1e3/second", `"1e3" is not a whole number of hits`},
		{"15 /second", `"15 " is not a whole number of hits`},
		{"١٥/second", "is not a whole number of hits"}, // digits, but not ours
		{"0/second", "0 hits: want 1 to 1000000000000000"},
		{"1000000000000001/second", "want 1 to 1000000000000000"},
		{"99999999999999999999/second", "want 1 to 1000000000000000"},
		{strings.Repeat("9", 1000) + "/second", strings.Repeat("9", 40) + " hits: want 1"},
		{"1/10", `"10" is not a span`},
		{"1/10 m", `"10 m" is not a span`},
		{"1/5us", `"5us" is not a span`},
		{"1/1hm", `"1hm" is not a span`},
		{"1/30m1h", "the largest first"},
		{"1/1m1m", "each unit at most once"},
		{"1/0s", "want more than 0"},
		{"1/367d", "at most 366 days"},
		{"1/366d1ms", "at most 366 days"},
		{"1/9223372036854775807w", "at most 366 days"},
		{"1/99999999999999999999ms", "at most 366 days"},
	} {
		if _, _, err := parseLimit(tt.text); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%.50s: got %v, want %q", tt.text, err, tt.want)
		}
	}
}

func TestFactors(t *testing.T) {
	for text, want := range map[string]float64{"10x": 10, "0.5x": 0.5, strings.Repeat("0", 39) + "7x": 7} {
		if got, err := parseFactor(text); got != want || err != nil {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"10", "x", ".5x", "5.x", "-1x", "1e3x", strings.Repeat("0", 40) + "7x"} {
		if got, err := parseFactor(text); err == nil {
			t.Errorf("%s: %v", text, got)
		}
	}
}
