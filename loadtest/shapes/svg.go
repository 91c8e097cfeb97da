package shapes

import (
	"fmt"
	"strings"
	"time"
)

// Measures of the picture, in its own units.
const (
	width, left, right = 900, 150, 20
	row, bar           = 76, 44
	top                = 30
	most               = 21 // hits in a bin that a bar of full height stands for
)

// SVG draws the picture. The same shapes give the same bytes.
func SVG(asked []int, shapes []Shape) string {
	var b strings.Builder
	height := top + row*len(shapes) + 30
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", width, height)
	fmt.Fprintf(&b, `<title>What each algorithm lets through of the same traffic, with a limit of 10 per second</title>`+"\n")
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", width, height)
	fmt.Fprintf(&b, `<text x="%d" y="18" fill="#555555">grey: asked for, in each tenth of a second; blue: passed then</text>`+"\n", left)
	for i, s := range shapes {
		base := top + row*i + bar + 14
		fmt.Fprintf(&b, `<text x="10" y="%d" font-weight="bold">%s</text>`+"\n", base-24, s.Name)
		fmt.Fprintf(&b, `<text x="%d" y="%d" fill="#555555">%s</text>`+"\n", left, base+13, s.Words)
		bars(&b, asked, base, "#d0d0d0")
		bars(&b, s.Passed, base, "#2a6fbb")
		fmt.Fprintf(&b, `<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="#888888"/>`+"\n", left, base, width-right, base)
	}
	for s := range int(Length/time.Second) + 1 {
		x := left + float64(width-left-right)*float64(s)/Length.Seconds()
		fmt.Fprintf(&b, `<text x="%.0f" y="%d" text-anchor="middle">%d s</text>`+"\n", x, height-8, s)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// bars draws a row of bars that stand on base.
func bars(b *strings.Builder, hits []int, base int, colour string) {
	step := float64(width-left-right) / float64(len(hits))
	for i, n := range hits {
		if n > 0 {
			h := float64(bar) * min(float64(n)/most, 1)
			fmt.Fprintf(b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>`+"\n", left+step*float64(i), float64(base)-h, step-1, h, colour)
		}
	}
}
