package report

import (
	"math"
	"strings"
	"unicode/utf8"

	"github.com/offpath-io/offpath/loadtest/result"
)

// bars is one cost of all runs, a bar each. The template draws it: its lengths are per cent of the
// width, so that it needs no script to fit.
type bars struct {
	Title  string
	Label  string
	Height int
	Rows   []bar
}

// A bar is one run's. The places are from the top, in pixels: of the text's base line, and of the
// bar.
type bar struct {
	Name, Value string
	Length      string // per cent of the width
	TextY, BarY int
}

const (
	rowHeight = 40
	textBase  = 15
	barTop    = 21
)

// costs are the costs of counting per 1,000 hits.
func costs(runs []result.Run) []bars {
	if len(runs) == 0 {
		return nil
	}
	return []bars{
		costOf("Reports per 1,000 hits", runs, func(r result.Run) (float64, string) {
			return r.ReportsPer1000, quantity(r.ReportsPer1000)
		}),
		costOf("Bytes of reports per 1,000 hits", runs, func(r result.Run) (float64, string) {
			return r.ReportBytesPer1000, scaled(r.ReportBytesPer1000, bytes)
		}),
		costOf("Store commands per 1,000 hits", runs, func(r result.Run) (float64, string) {
			return r.StoreCommandsPer1000, quantity(r.StoreCommandsPer1000)
		}),
	}
}

func costOf(title string, runs []result.Run, cost func(result.Run) (float64, string)) bars {
	b := bars{Title: title, Height: len(runs) * rowHeight}
	longest := 0.0
	for _, r := range runs {
		if v, _ := cost(r); !math.IsInf(v, 0) && !math.IsNaN(v) {
			longest = max(longest, v)
		}
	}
	var said []string
	for i, r := range runs {
		v, text := cost(r)
		said = append(said, nameOf(r)+" "+text)
		length := 0.0
		if v > 0 && longest > 0 {
			length = min(100, v/longest*100)
		}
		top := i * rowHeight
		b.Rows = append(b.Rows, bar{cut(nameOf(r)), text, plain(length, 2), top + textBase, top + barTop})
	}
	b.Label = "Bar chart. " + title + ": " + strings.Join(said, ", ") + "."
	return b
}

// cut keeps a name from running into the figure at the other end of its line.
func cut(name string) string {
	const most = 42
	if utf8.RuneCountInString(name) <= most {
		return name
	}
	return string([]rune(name)[:most-1]) + "…"
}
