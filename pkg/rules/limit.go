package rules

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/offpath-io/offpath/pkg/window"
)

const day = 24 * time.Hour

var (
	// unitWords are the units of N/unit.
	unitWords = map[string]time.Duration{
		"second": time.Second, "minute": time.Minute, "hour": time.Hour,
		"day": day, "week": 7 * day,
		"s": time.Second, "m": time.Minute, "h": time.Hour, "d": day, "w": 7 * day,
	}
	// spanUnits are the units of N/span, as in 1h30m.
	spanUnits = map[string]time.Duration{
		"ms": time.Millisecond, "s": time.Second, "m": time.Minute, "h": time.Hour,
		"d": day, "w": 7 * day,
	}
)

// unread is why a text was not read, and, for one without a remedy, an example.
type unread struct{ reason, example string }

// Error is the reason with the example.
func (u *unread) Error() string { return u.reason + u.example }

func unreadf(example, format string, args ...any) error {
	return &unread{fmt.Sprintf(format, args...), example}
}

// remedied is the error with the remedy, if there is one, in place of the example.
func remedied(err error, remedy string) error {
	if u, ok := errors.AsType[*unread](err); ok && remedy != "" {
		return errors.New(u.reason + remedy)
	}
	return err
}

// parseLimit reads N/unit or N/span. Its errors are made to follow the text itself.
func parseLimit(text string) (hits int64, span time.Duration, err error) {
	number, per, ok := strings.Cut(text, "/")
	if !ok {
		return 0, 0, unreadf(", such as 15/second or 3000/10m", "want hits per time")
	}
	if number == "" || !allDigits(number) {
		return 0, 0, unreadf(", in the digits 0 to 9", "%.40q is not a whole number of hits", number)
	}
	hits, err = strconv.ParseInt(number, 10, 64)
	if err != nil || hits < 1 || hits > window.MaxCount {
		return 0, 0, unreadf("", "%.40s hits: want 1 to %d", number, window.MaxCount)
	}
	if per == "" {
		return 0, 0, unreadf("", "the time is missing")
	}
	if unit, ok := unitWords[per]; ok {
		return hits, unit, nil
	}
	if per[0] < '0' || per[0] > '9' {
		return 0, 0, unreadf(" (want second, minute, hour, day, week or a span such as 10m)",
			"unknown unit %.40q", per)
	}
	span, err = parseSpan(per)
	return hits, span, err
}

// parseSpan reads numbers with units, the largest unit first: 90s, 1h30m, 250ms. Not
// time.ParseDuration, which knows no days and takes fractions, signs and any order.
func parseSpan(text string) (time.Duration, error) {
	var span time.Duration
	for rest, smallest := text, window.MaxLength; rest != ""; {
		digits := rest[:len(rest)-len(strings.TrimLeft(rest, "0123456789"))]
		rest = rest[len(digits):]
		name := rest[:len(rest)-len(strings.TrimLeft(rest, "abcdefghijklmnopqrstuvwxyz"))]
		rest = rest[len(name):]
		unit, ok := spanUnits[name]
		if digits == "" || !ok {
			return 0, unreadf(" (want whole numbers of w, d, h, m, s or ms, such as 10m or 1h30m)",
				"%.40q is not a span", text)
		}
		if unit >= smallest {
			return 0, unreadf(", such as 1h30m",
				"span %.40q: each unit at most once, the largest first", text)
		}
		smallest = unit
		n, err := strconv.ParseInt(digits, 10, 64)
		if err != nil || n > int64((window.MaxLength-span)/unit) {
			return 0, unreadf("", "span %.40q: want at most 366 days", text)
		}
		span += time.Duration(n) * unit
	}
	if span == 0 {
		return 0, unreadf("", "span %.40q: want more than 0", text)
	}
	return span, nil
}

func allDigits(text string) bool {
	return strings.Trim(text, "0123456789") == ""
}

// limitText writes a limit so that parseLimit reads it back.
func limitText(hits int64, span time.Duration) string {
	for _, unit := range []string{"second", "minute", "hour", "day", "week"} {
		if unitWords[unit] == span {
			return strconv.FormatInt(hits, 10) + "/" + unit
		}
	}
	return strconv.FormatInt(hits, 10) + "/" + spanText(span)
}

// spanText writes a span of whole milliseconds so that parseSpan reads it back. It has weeks only
// if it is whole weeks: 30d, not 4w2d.
func spanText(span time.Duration) string {
	var text strings.Builder
	for _, name := range []string{"w", "d", "h", "m", "s", "ms"} {
		if name == "w" && span%spanUnits[name] != 0 {
			continue
		}
		if n := span / spanUnits[name]; n > 0 {
			fmt.Fprintf(&text, "%d%s", n, name)
			span %= spanUnits[name]
		}
	}
	return text.String()
}
