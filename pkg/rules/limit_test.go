package rules

import (
	"strings"
	"testing"
	"time"
)

func TestLimits(t *testing.T) {
	const week = 7 * day
	for text, want := range map[string]rate{
		"15/second": {15, time.Second}, "15/s": {15, time.Second},
		"1/minute": {1, time.Minute}, "1/m": {1, time.Minute},
		"100/hour": {100, time.Hour}, "500/h": {500, time.Hour},
		"3/day": {3, day}, "3/d": {3, day}, "7/week": {7, week}, "7/w": {7, week},
		"3000/10m": {3000, 10 * time.Minute}, "20/90s": {20, 90 * time.Second},
		"5/1ms": {5, time.Millisecond}, "100/1h30m": {100, 90 * time.Minute},
		"1/1w2d3h4m5s6ms": {1, week + 2*day + 3*time.Hour + 4*time.Minute + 5*time.Second + 6*time.Millisecond},
		"1/366d":          {1, 366 * day}, "1000000000000000/s": {1e15, time.Second},
	} {
		var got rate
		if err := got.UnmarshalText([]byte(text)); err != nil || got != want {
			t.Errorf("%s: %v, %v; want %v", text, got, err, want)
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
