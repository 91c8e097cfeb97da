package rules

import (
	"errors"
	"math"
	"strconv"
	"strings"
)

var errPercent = errors.New("want a percentage such as 10% or 12.5%")

// String is the part as a percentage, and in full, so that parsePercent makes the same part of it.
func (p percent) String() string {
	part := float64(p)
	if math.IsNaN(part) || math.IsInf(part, 0) {
		return strconv.FormatFloat(part, 'f', -1, 64)
	}
	sign, text := "", strconv.FormatFloat(part, 'f', -1, 64)
	if text[0] == '-' {
		sign, text = "-", text[1:]
	}
	whole, decimals, _ := strings.Cut(text, ".")
	for len(decimals) < 2 {
		decimals += "0"
	}
	whole, decimals = strings.TrimLeft(whole+decimals[:2], "0"), decimals[2:]
	if whole == "" {
		whole = "0"
	}
	if decimals != "" {
		whole += "." + decimals
	}
	return sign + whole + "%"
}

// parsePercent reads a percentage as a part: 10% is 0.1. It moves the point in the text, so that no
// digit is lost.
func parsePercent(text string) (float64, error) {
	number, ok := strings.CutSuffix(text, "%")
	if !ok || !isDecimal(number) || len(number) > 40 {
		return 0, errPercent
	}
	whole, decimals, _ := strings.Cut(number, ".")
	whole = "00" + whole
	point := len(whole) - 2
	return strconv.ParseFloat(whole[:point]+"."+whole[point:]+decimals, 64)
}

// parseFactor reads a factor such as 10x or 0.5x.
func parseFactor(text string) (float64, error) {
	number, ok := strings.CutSuffix(text, "x")
	if !ok || !isDecimal(number) || len(number) > 40 {
		return 0, errors.New("want a factor such as 10x or 0.5x")
	}
	return strconv.ParseFloat(number, 64)
}

// isDecimal reports whether the text is digits, or digits around a point.
func isDecimal(text string) bool {
	whole, decimals, point := strings.Cut(text, ".")
	return whole != "" && allDigits(whole) && (!point || decimals != "" && allDigits(decimals))
}
