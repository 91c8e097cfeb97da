// Package uplot has the chart library of offpath's pages, as its authors publish it. README.md says
// which version it is.
package uplot

import "embed"

// Script and Style are the names of the files that a page needs; License goes with them.
const (
	Script  = "uPlot.iife.min.js"
	Style   = "uPlot.min.css"
	License = "LICENSE"
)

// Files has them.
//
//go:embed uPlot.iife.min.js uPlot.min.css LICENSE
var Files embed.FS
