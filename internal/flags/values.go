package flags

import (
	"cmp"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
)

// OneOf returns a parser of the texts of some values, in capitals or not.
func OneOf[T any](values ...T) func(string) (T, error) {
	return func(text string) (none T, err error) {
		var names []string
		for _, v := range values {
			name := strings.ToLower(fmt.Sprint(v))
			if name == strings.ToLower(text) {
				return v, nil
			}
			names = append(names, name)
		}
		last := len(names) - 1
		return none, fmt.Errorf("%q: want %s or %s", text, strings.Join(names[:last], ", "),
			names[last])
	}
}

// Address takes host:port to listen on, with a numeric port; no host means every address.
func Address(text string) (string, error) {
	_, port, err := net.SplitHostPort(text)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return "", fmt.Errorf("%q: want host:port, such as 127.0.0.1:8080", text)
	}
	return text, nil
}

// Int returns a parser of whole numbers from least to most.
func Int(least, most int) func(string) (int, error) {
	return between(strconv.Atoi, "a whole number", least, most)
}

// Float returns a parser of numbers from least to most.
func Float(least, most float64) func(string) (float64, error) {
	parse := func(text string) (float64, error) { return strconv.ParseFloat(text, 64) }
	return between(parse, "a number", least, most)
}

// Duration returns a parser of durations from least to most.
func Duration(least, most time.Duration) func(string) (time.Duration, error) {
	return between(time.ParseDuration, "a duration such as 50ms,", least, most)
}

func between[T cmp.Ordered](
	parse func(string) (T, error), kind string, least, most T,
) func(string) (T, error) {
	return func(text string) (T, error) {
		v, err := parse(text)
		if err != nil || !(v >= least && v <= most) { // nor NaN
			return v, fmt.Errorf("%q: want %s from %v to %v", text, kind, least, most)
		}
		return v, nil
	}
}

// Uint64 takes whole numbers from 0 in decimal: pflag would read 010 as eight.
func Uint64(text string) (uint64, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%q: want a whole number from 0", text)
	}
	return n, nil
}
