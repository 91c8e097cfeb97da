package counter

import "github.com/offpath-io/offpath/pkg/check/internal/forecast"

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

// note takes in own hits of a counter near its limit.
func (a *Forecast) note(now, admitted, denied int64) {
	a.Note(now, admitted+denied, admitted)
	a.DeniedOwn += denied
	a.falseDenials.Admitted(admitted)
}
