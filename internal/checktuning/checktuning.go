// Package checktuning has the settings of a checker that only tests and the simulator change: what
// they trade off is decided for everybody, by the defaults.
package checktuning

import "time"

// Tuning is part of [check.Options]. The zero value stands for the defaults.
//
// [check.Options]: https://pkg.go.dev/github.com/offpath-io/offpath/pkg/check#Options
type Tuning struct {
	// FlushFloor is about the least time between two flushes when something asks for an early one:
	// a key near its limit, an alarm about a key with pending hits, or a lack of room. It is
	// rounded up to a power of two of milliseconds, because all checkers of a fleet report such
	// keys at the same moments; give all the same. As long as FlushEvery: no flush comes early.
	// Default 4 ms, or FlushEvery if that is less.
	FlushFloor time.Duration
	// ReportKeys is the most keys in one report. Default 1,000.
	ReportKeys int
	// ReportTimeout is how long a report waits for its answer before it is sent again, or less if
	// recent answers took much less. It doubles with each sending after the fifth, up to eight
	// times. Default 250 ms.
	ReportTimeout time.Duration
	// NoForecast lets the checker decide by base, hits in flight and pending hits alone. Hits that
	// others have admitted and not reported yet are then let pass once more.
	NoForecast bool
}
