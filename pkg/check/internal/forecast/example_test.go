package forecast_test

import (
	"fmt"
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/forecast"
)

// Two checkers share a key of 1,000 hits a second. Each admits 5 hits in every ms; an update tells
// this one every 4 ms what both have admitted up to then. Between updates it reckons with the
// other's hits.
func Example() {
	const fast = int64(4 * time.Millisecond)
	fleet := forecast.Fleet{Checkers: 2, FastInterval: fast, Trail: fast}
	begin := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC).UnixNano()
	key := forecast.New(begin, fleet, 0, 1)

	now, known := begin, 0.0
	own := func(hits int64) { // admitted here
		key.Note(now, hits, hits)
		known += float64(hits)
	}
	look := func() {
		w := forecast.Window{Limit: 1000, Free: 1000 - known, Unreported: known}
		o := key.Look(now, w, fleet)
		fmt.Printf("%d ms: free as far as is known %.0f, probably %.0f\n", (now-begin)/1e6, w.Free, o.Free)
	}

	for round := range int64(20) { // 80 ms
		for range 4 {
			now += fast / 8
			own(5)
			now += fast / 8
		}
		key.Reported(now, fleet)
		key.Observe(forecast.Update{
			Now: now, Made: now, Round: fast, Bucket: now / 1e9,
			Admitted: forecast.Totals{float64(40 * (round + 1))}, // by both
			News:     20,                                         // by the other, which was not known before
		}, fleet)
		known += 20
	}
	look() // an update has just come; the forecast keeps a small margin to the limit

	now += fast / 4
	own(10)
	now += fast / 4
	look() // the other has probably admitted 10 too

	now += fast / 4
	own(10)
	now += fast / 4
	key.Observe(forecast.Update{
		Now: now, Made: now, Round: fast, Bucket: now / 1e9, Admitted: forecast.Totals{840}, News: 20,
	}, fleet)
	known += 20
	look() // it has: now it is known

	// The room that is left is small: of what comes, only a part may pass. Here it is every second
	// hit.
	o := key.Look(now, forecast.Window{Limit: 1000, Free: 8.4}, fleet)
	fmt.Printf("a part of %.2f:", o.Part)
	for range 8 {
		fmt.Print(" ", key.Pass(o.Part, 1))
	}
	fmt.Println()

	// Output:
	// 80 ms: free as far as is known 200, probably 199
	// 82 ms: free as far as is known 190, probably 179
	// 84 ms: free as far as is known 160, probably 159
	// a part of 0.49: false false true false true false true false
}
