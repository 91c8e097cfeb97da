package counter

import (
	"github.com/offpath-io/offpath/pkg/check/internal/forecast"
	"github.com/offpath-io/offpath/pkg/window"
)

// Forecast is what a counter has beside its counts once its key has come near its limit: the
// forecast of what others have admitted unheard.
type Forecast struct {
	forecast.Key
	Part      float64 // of the hits that may pass, as of the last look
	inFlight  []int64 // hits per bucket, as the counter's pending
	DeniedOwn int64   // own hits denied, in no report yet
	AnyDenied bool    // by anybody, as far as is known
	ageing    bool    // waiting in the queue of forecasts that may leave
	counted   uint32  // hits taken off the allowance that have been counted, see PutDown

	falseDenials forecast.FalseDenials
}

// levelState is what the counter of a key of a token or leaky bucket has beside its counts.
type levelState struct {
	level window.Level // of a bucket before the newest
	// dates are when own hits of a token bucket came, for which level is lower, by so many parts,
	// than by counts alone.
	dates window.Dates
	slack int64
	// own is that of pending hits alone, each counted as often as there are checkers, so that they
	// drain at this checker's share of the rate. It is of use while this checker keeps to its
	// share.
	own window.Level
	// turn is when the last own hit in the queue of a leaky bucket has drained; fleet time. Others'
	// hits are known by bucket, own ones to the nanosecond.
	turn   int64
	others forecast.Outflow
}

// note takes in own hits of a counter near its limit.
func (a *Forecast) note(now, admitted, denied int64) {
	a.Note(now, admitted+denied, admitted)
	a.DeniedOwn += denied
	a.falseDenials.Admitted(admitted)
}

// copy makes d, whose memory it keeps, a copy of another.
func (d *levelState) copy(of *levelState) {
	dates := d.dates
	dates.Copy(&of.dates)
	*d = *of
	d.dates = dates
}
