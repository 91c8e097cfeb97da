package counter

import "github.com/offpath-io/offpath/pkg/check/internal/forecast"

// Forecast is the state that a counter has beside its counts once its key has reached the forecast
// threshold: an estimate of the hits that others have admitted and not reported.
type Forecast struct {
	forecast.Key
	Part      float64 // the part of the hits that may pass, by the last look
	inFlight  []int64 // hits per bucket, as the counter's pending
	DeniedOwn int64   // own hits denied, in no report yet
	AnyDenied bool    // by anybody, as far as is known
	ageing    bool    // in the queue of forecasts that may be dropped
	counted   uint32  // hits taken off the allowance that have been counted, see PutDown

	falseDenials forecast.FalseDenials
}

// note records own hits.
func (a *Forecast) note(now, admitted, denied int64) {
	a.Note(now, admitted+denied, admitted)
	a.DeniedOwn += denied
	a.falseDenials.Admitted(admitted)
}
