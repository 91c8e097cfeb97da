package report

import (
	"encoding/json"
	"math"
	"slices"
)

// A chart is a plot with its words, or, where there is nothing to draw, a sentence that says why.
type chart struct {
	ID    string
	Kind  string // timeline, latency or sweep
	Title string
	Note  string // below the title
	Label string // instead of the picture, for those who do not see it
	Plot  *plot  // nil if there is none
}

// A plot is what charts.js draws: values that lie where they are to be drawn (logarithms have been
// taken), and the texts to go with them, so that the script knows nothing of what it shows.
type plot struct {
	X      axis      `json:"x"`
	Y      axis      `json:"y"`
	At     []float64 `json:"at"`               // the points' places along x, ascending
	AtText []string  `json:"atText,omitempty"` // what they are called; without it the place and x's unit
	Lines  []line    `json:"lines"`
	Level  *mark     `json:"level,omitempty"` // a horizontal line
	Here   *mark     `json:"here,omitempty"`  // a vertical line
}

// An axis goes from Min to Max. Without ticks, the script chooses round numbers.
type axis struct {
	Label string  `json:"label"` // with the unit
	Unit  string  `json:"unit"`
	Min   float64 `json:"min"`
	Max   float64 `json:"max"`
	Ticks []mark  `json:"ticks,omitempty"`
}

// A mark is a place on an axis, and its name.
type mark struct {
	At   float64 `json:"at"`
	Text string  `json:"text"`
}

// A line has a value at each of the plot's places. Style names its colour in style.css.
type line struct {
	Name   string   `json:"name"`
	Style  string   `json:"style"`
	Dashed bool     `json:"dashed,omitempty"`
	Dots   bool     `json:"dots,omitempty"`
	Values []value  `json:"values"`
	Texts  []string `json:"texts,omitempty"` // without it the value and y's unit
}

// A value is a number to draw; one that is none is left out.
type value float64

// MarshalJSON writes null for what JSON cannot say, and no more digits than can be seen.
func (v value) MarshalJSON() ([]byte, error) {
	if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
		return []byte("null"), nil
	}
	return json.Marshal(rounded(float64(v), 4))
}

// rounded keeps so many decimals, and for small numbers as many digits.
func rounded(v float64, digits int) float64 {
	if v == 0 {
		return 0
	}
	decimals := digits
	if abs := math.Abs(v); abs < 1 {
		decimals += int(math.Ceil(-math.Log10(abs)))
	}
	scale := math.Pow10(decimals)
	return math.Round(v*scale) / scale
}

// percents are fractions as values in per cent, none for those missing of so many.
func percents(fractions []float64, of int) []value {
	list := make([]value, of)
	for i := range list {
		list[i] = value(math.NaN())
		if i < len(fractions) {
			list[i] = value(fractions[i] * 100)
		}
	}
	return list
}

// limits are the smallest and the largest of some values; without any, from is above to.
func limits(lists ...[]value) (from, to float64) {
	from, to = math.Inf(1), math.Inf(-1)
	for _, v := range slices.Concat(lists...) {
		if f := float64(v); !math.IsNaN(f) && !math.IsInf(f, 0) {
			from, to = min(from, f), max(to, f)
		}
	}
	return from, to
}
