// Package report shows what a load test found out: as tables on a terminal, and as one HTML page
// with charts that opens offline. It reckons nothing that is not in the result; both views take
// their figures, and the figures' names, from one list (columns.go).
package report

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"github.com/offpath-io/offpath/loadtest/result"
)

// Terminal writes a result for a terminal of 80 columns (one run: a sheet) or 140 (several runs: a
// line each with the most telling figures, then all figures, a table for each kind). What must not
// be overlooked is written last. The only errors are w's.
func Terminal(w io.Writer, f result.File) error {
	out := bufio.NewWriter(w) // it remembers the first error, which Flush returns
	switch len(f.Runs) {
	case 0:
		fmt.Fprintln(out, "No run was measured.")
	case 1:
		sheet(out, f.Runs[0])
	default:
		overview(out, f.Runs)
		for _, g := range groups {
			table(out, g.Title, f.Runs, g.Columns)
		}
	}
	fmt.Fprintf(out, "\nMeasured by %s.\n", where(f))
	for i, text := range alarms(f) {
		if i == 0 {
			fmt.Fprintln(out)
		}
		fmt.Fprintf(out, "!! %s\n", text)
	}
	return out.Flush()
}

// overview is the table of what is asked for first.
func overview(w io.Writer, runs []result.Run) {
	var telling []column
	for _, g := range groups {
		for _, c := range g.Columns {
			if c.shown == inOverview {
				telling = append(telling, c)
			}
		}
	}
	table(w, fmt.Sprintf("%d runs", len(runs)), runs, telling)
}

// table has a line for each run. Heads may have two lines.
func table(w io.Writer, title string, runs []result.Run, columns []column) {
	rows := [][]string{{title}, {""}}
	for _, c := range columns {
		upper, lower, two := strings.Cut(c.Head, "|")
		if !two {
			upper, lower = "", upper
		}
		rows[0], rows[1] = append(rows[0], upper), append(rows[1], lower)
	}
	for _, r := range runs {
		row := []string{nameOf(r)}
		for _, c := range columns {
			row = append(row, c.Value(r))
		}
		rows = append(rows, row)
	}
	align(w, rows)
}

// align writes rows with the first column to the left and the others to the right, as figures want
// it.
func align(w io.Writer, rows [][]string) {
	width := 0
	for _, row := range rows {
		width = max(width, utf8.RuneCountInString(row[0]))
	}
	var text strings.Builder
	cells := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, row := range rows {
		// The writer aligns all columns to the right, and pads the first too; spaces behind a name
		// take it to the left.
		row[0] += strings.Repeat(" ", width-utf8.RuneCountInString(row[0]))
		fmt.Fprintln(cells, strings.Join(row, "\t")+"\t")
	}
	cells.Flush()
	fmt.Fprintln(w)
	for line := range strings.Lines(text.String()) {
		fmt.Fprintln(w, strings.TrimRight(strings.TrimPrefix(line, "  "), " \n"))
	}
}

// sheet is one run, a line for each figure.
func sheet(w io.Writer, r result.Run) {
	fmt.Fprintf(w, "\n%s (%s)\n", nameOf(r), mode(r))
	wrap(w, sentence(r.Description)+" "+strings.Join(inWords(r), " "))
	for _, g := range findings() {
		fmt.Fprintf(w, "\n%s\n", g.Title)
		lines := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		for _, c := range g.Columns {
			fmt.Fprintf(lines, "  %s\t%s\n", c.Label, c.Value(r))
		}
		lines.Flush()
	}
}

// wrap writes words in lines of at most 80 columns, unless a word alone is longer.
func wrap(w io.Writer, text string) {
	const most = 80
	width := 0
	for _, word := range strings.Fields(text) {
		length := utf8.RuneCountInString(word)
		switch {
		case width == 0:
		case width+1+length > most:
			fmt.Fprintln(w)
			width = 0
		default:
			fmt.Fprint(w, " ")
			width++
		}
		fmt.Fprint(w, word)
		width += length
	}
	fmt.Fprintln(w)
}
