package report

import (
	"math"
	"strconv"
	"strings"
)

// none stands for a figure that a run does not have.
const none = "–"

// count is a whole number with a comma at every third digit.
func count(n int64) string { return grouped(strconv.FormatInt(n, 10)) }

// quantity has three digits that count, and more where the number is larger; a small one keeps two.
func quantity(v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return none
	}
	return plain(v, decimals(v))
}

// decimals is how many digits behind the point a figure of this size is worth.
func decimals(v float64) int {
	switch abs := math.Abs(v); {
	case abs >= 100 || abs == 0:
		return 0
	case abs >= 10:
		return 1
	case abs >= 0.1:
		return 2
	default:
		return 1 - int(math.Floor(math.Log10(abs)))
	}
}

// plain writes a number with at most so many decimals, no zeros at its end, and a real minus.
func plain(v float64, decimals int) string {
	text := strconv.FormatFloat(v, 'f', decimals, 64)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	if text == "-0" {
		text = "0"
	}
	return grouped(text)
}

// grouped puts commas into a number as strconv writes it.
func grouped(text string) string {
	sign := ""
	if rest, negative := strings.CutPrefix(text, "-"); negative {
		sign, text = "−", rest
	}
	whole, fraction, pointed := strings.Cut(text, ".")
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if pointed {
		whole += "." + fraction
	}
	return sign + whole
}

// share is a fraction as a percentage. What is not zero is never shown as zero.
func share(fraction float64) string {
	percent := fraction * 100
	digits := 3
	switch abs := math.Abs(percent); {
	case math.IsNaN(percent) || math.IsInf(percent, 0):
		return none
	case percent > 0 && abs < 0.001:
		return "<0.001 %"
	case percent < 0 && abs < 0.001:
		return ">−0.001 %"
	case abs == 0 || abs >= 1000:
		digits = 0
	case abs >= 1:
		digits = 1
	case abs >= 0.1:
		digits = 2
	}
	return grouped(strconv.FormatFloat(percent, 'f', digits, 64)) + " %"
}

// excess is a fraction above (+) or below (−) something, as a percentage.
func excess(fraction float64) string {
	text := share(fraction)
	if fraction <= 0 || text == none || strings.HasPrefix(text, "<") {
		return text
	}
	return "+" + text
}

// scaled writes a value in the largest of the units that it reaches; each is its factor and its
// name.
func scaled(v float64, units []unit) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return none
	}
	last := units[0]
	for _, u := range units[1:] {
		if math.Abs(v) < u.factor {
			break
		}
		last = u
	}
	return quantity(v/last.factor) + " " + last.name
}

type unit struct {
	factor float64
	name   string
}

var (
	nanoseconds  = []unit{{1, "ns"}, {1e3, "µs"}, {1e6, "ms"}, {1e9, "s"}}
	milliseconds = []unit{{1, "ms"}, {1e3, "s"}, {60e3, "min"}, {3600e3, "h"}}
	bytes        = []unit{{1, "B"}, {1e3, "kB"}, {1e6, "MB"}, {1e9, "GB"}}
	perSecond    = []unit{{1, "/s"}, {1e3, "k/s"}, {1e6, "M/s"}, {1e9, "G/s"}}
)

// ifAny is scaled for a figure that a run may not have.
func ifAny(v *float64, units []unit) string {
	if v == nil {
		return none
	}
	return scaled(*v, units)
}
