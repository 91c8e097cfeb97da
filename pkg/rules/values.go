package rules

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/offpath-io/offpath/pkg/rules/internal/strictyaml"
	"github.com/offpath-io/offpath/pkg/window"
)

// word is a value that has a word in YAML.
type word[T worded] struct{ Is T }

// UnmarshalText accepts the words of the type.
func (w *word[T]) UnmarshalText(text []byte) error {
	words := wordsOf[T]()
	if !slices.Contains(words, string(text)) {
		return fmt.Errorf("%.40q: want %s%s", text, orList(words), wordRemedy(string(text), words))
	}
	for w.Is = 0; w.Is.String() != string(text); w.Is++ {
	}
	return nil
}

// MarshalText writes the word.
func (w word[T]) MarshalText() ([]byte, error) { return []byte(w.Is.String()), nil }

// whole is a whole number from 1.
type whole int64

// UnmarshalYAML accepts plain decimal numbers.
func (w *whole) UnmarshalYAML(n *yaml.Node) error {
	value, err := strictyaml.Whole(n, 1, window.MaxCount)
	*w = whole(value)
	return err
}

// int is the number, or if an int might not have room for it one beyond all limits.
func (w whole) int() int { return int(min(w, math.MaxInt32)) }

// rate is hits per time: 15/second, 3000/10m.
type rate struct {
	Hits int64
	Per  time.Duration
}

// UnmarshalText accepts N/unit and N/span.
func (r *rate) UnmarshalText(text []byte) (err error) {
	if r.Hits, r.Per, err = parseLimit(string(text)); err != nil {
		err = remedied(err, limitRemedy(string(text)))
	}
	return quoted(text, err)
}

// MarshalText writes the rate as UnmarshalText reads it.
func (r rate) MarshalText() ([]byte, error) { return []byte(limitText(r.Hits, r.Per)), nil }

// overrideLimit is a rate, a factor, unlimited or blocked.
type overrideLimit struct {
	rate
	Factor float64
	Action Action
}

// UnmarshalText accepts 200/second, 10x, unlimited and blocked.
func (o *overrideLimit) UnmarshalText(text []byte) (err error) {
	switch limit := string(text); {
	case limit == Unlimited.String():
		o.Action = Unlimited
	case limit == Blocked.String():
		o.Action = Blocked
	case strings.Contains(limit, "/"):
		return o.rate.UnmarshalText(text)
	case strings.HasSuffix(limit, "x"):
		if o.Factor, err = parseFactor(limit); err == nil && o.Factor == 0 {
			err = errors.New("want more than 0: write blocked")
		}
	default:
		err = errors.New("want a limit such as 200/second, a factor such as 10x, " +
			"unlimited or blocked" + overrideRemedy(limit))
	}
	return quoted(text, err)
}

// MarshalText writes the limit as UnmarshalText reads it.
func (o overrideLimit) MarshalText() ([]byte, error) {
	switch {
	case o.Action != Limited:
		return []byte(o.Action.String()), nil
	case o.Factor != 0:
		return []byte(strconv.FormatFloat(o.Factor, 'f', -1, 64) + "x"), nil
	}
	return o.rate.MarshalText()
}

// span is a time that something may take: 200ms, 1h30m.
type span struct{ time.Duration }

// UnmarshalText accepts numbers with units.
func (s *span) UnmarshalText(text []byte) (err error) {
	if s.Duration, err = parseSpan(string(text)); err != nil {
		return quoted(text, errors.New("want a span such as 200ms or 2s"+spanRemedy(string(text))))
	}
	return nil
}

// MarshalText writes the span as UnmarshalText reads it.
func (s span) MarshalText() ([]byte, error) { return []byte(spanText(s.Duration)), nil }

// moment is a time with its date and zone.
type moment struct{ time.Time }

// UnmarshalText accepts times as of RFC 3339.
func (m *moment) UnmarshalText(text []byte) (err error) {
	m.Time, err = time.Parse(time.RFC3339, string(text))
	if err != nil || m.IsZero() {
		return quoted(text, errors.New("want a time such as 2026-12-01T00:00:00Z"+momentRemedy(string(text))))
	}
	return nil
}

// MarshalYAML writes the time as a string, for which not every reader of YAML would take it.
func (m moment) MarshalYAML() (any, error) {
	text := m.Format(time.RFC3339Nano)
	return &yaml.Node{Kind: yaml.ScalarNode, Value: text, Style: yaml.SingleQuotedStyle}, nil
}

// percent is a part of something: 10% is 0.1.
type percent float64

// UnmarshalText accepts percentages.
func (p *percent) UnmarshalText(text []byte) error {
	number, ok := strings.CutSuffix(string(text), "%")
	if !ok || !isDecimal(number) {
		return quoted(text, errors.New("want a percentage such as 10% or 12.5%"+percentRemedy(string(text))))
	}
	part, err := strconv.ParseFloat(number+"e-2", 64)
	*p = percent(part)
	return quoted(text, err)
}

// MarshalText writes the percentage as UnmarshalText reads it.
func (p percent) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// String is the part as a percentage, and in full, so that the same part is read from it.
func (p percent) String() string {
	text := strconv.FormatFloat(float64(p), 'f', -1, 64)
	hundredfold, ok := new(big.Rat).SetString(text + "e2")
	if !ok { // NaN or an infinity
		return text
	}
	_, decimals, _ := strings.Cut(text, ".")
	return hundredfold.FloatString(max(len(decimals)-2, 0)) + "%"
}

// parseFactor reads a factor such as 10x or 0.5x.
func parseFactor(text string) (float64, error) {
	number, ok := strings.CutSuffix(text, "x")
	if !ok || !isDecimal(number) {
		return 0, errors.New("want a factor such as 10x or 0.5x" + factorRemedy(text))
	}
	return strconv.ParseFloat(number, 64)
}

// isDecimal reports whether the text is up to 40 digits, or digits around a point.
func isDecimal(text string) bool {
	whole, decimals, point := strings.Cut(text, ".")
	return len(text) <= 40 && whole != "" && allDigits(whole) &&
		(!point || decimals != "" && allDigits(decimals))
}

// given is the percentage for an error.
func given(part float64) string {
	if part == 0 {
		return "is missing or 0%"
	}
	return percent(part).String()
}

// quoted puts the text that was read before the error, if there is one.
func quoted(text []byte, err error) error {
	if err != nil {
		err = fmt.Errorf("%.40q: %w", text, err)
	}
	return err
}
