package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// bar shows how far something is: a bar on a terminal, a line at the beginning elsewhere.
type bar struct{ shown *progressbar.ProgressBar }

const barSteps = 1000

func newBar(w io.Writer, what string) *bar {
	file, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		fmt.Fprintln(w, what)
		return &bar{}
	}
	return &bar{progressbar.NewOptions(barSteps,
		progressbar.OptionSetWriter(w), progressbar.OptionSetDescription(what),
		progressbar.OptionSetWidth(30), progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionClearOnFinish(), progressbar.OptionSetPredictTime(true),
	)}
}

// at moves the bar.
func (b *bar) at(done, all time.Duration) {
	if b.shown != nil && all > 0 {
		_ = b.shown.Set(int(float64(done) / float64(all) * (barSteps - 1))) // only cosmetics
	}
}

// end takes it away.
func (b *bar) end() {
	if b.shown != nil {
		_ = b.shown.Finish()
	}
}
