package console

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/offpath-io/offpath/internal/status"
)

const (
	// minutes is for how many minutes a key's demand is remembered.
	minutes = 60
	// maxDemand bounds the keys whose demand is remembered: 500 bytes each.
	maxDemand = 1000
)

// demand is what the busiest keys have asked for in each minute of the last hour, admitted or
// denied: what another limit would have done can be estimated from it. A minute's number is that
// of Unix time; minute n is at n % minutes.
type demand struct {
	began, last int64 // the first minute, and the one that was noted last; 0: none
	keys        map[keyID]*[minutes]float64
}

func newDemand() *demand { return &demand{keys: make(map[keyID]*[minutes]float64)} }

// note notes the minute that ends at a time, once, in which keys came as often per second as this.
// Keys that have not come for an hour make room.
func (d *demand) note(now time.Time, used, denied []topKey) {
	minute := now.Unix()/60 - 1
	if d.last >= minute {
		return
	}
	if d.began == 0 || minute-d.last >= minutes {
		d.began, d.keys = minute, make(map[keyID]*[minutes]float64)
	}
	for n := max(d.last+1, minute-minutes+1); n <= minute; n++ { // those between, which nobody noted, too
		for id, ring := range d.keys {
			ring[n%minutes] = 0
			if !slices.ContainsFunc(ring[:], func(v float64) bool { return v > 0 }) {
				delete(d.keys, id)
			}
		}
	}
	d.last = minute
	for _, list := range [][]topKey{used, denied} {
		for _, k := range list {
			ring := d.keys[k.keyID]
			if ring == nil {
				if len(d.keys) >= maxDemand {
					continue
				}
				ring = new([minutes]float64)
				d.keys[k.keyID] = ring
			}
			ring[minute%minutes] += k.rate * 60
		}
	}
}

// WhatIf is what another limit of a rule would have done in the last hour, to the busiest keys.
type WhatIf struct {
	Rule status.Rule `json:"rule"`
	// Limit is what it would have been.
	Limit int64 `json:"limit"`
	// Minutes is how much is known of the last hour, Keys of how many keys of the rule, Hits how
	// many they were, about.
	Minutes int     `json:"minutes"`
	Keys    int     `json:"keys"`
	Hits    float64 `json:"hits"`
	// Denied is how many would have been denied, about, and LimitedKeys of how many keys.
	Denied      float64 `json:"denied"`
	LimitedKeys int     `json:"limited_keys"`
	// AsIs is Denied as the same computation finds it for the rule's own limit.
	AsIs float64 `json:"denied_by_own_limit"`
	// Most are the keys that it would have denied most.
	Most []WhatIfKey `json:"most"`
	// TooLong says that the window is longer than what is known.
	TooLong bool `json:"window_too_long,omitempty"`
}

// WhatIfKey is one of the keys.
type WhatIfKey struct {
	Key    status.Text `json:"key"`
	Hits   float64     `json:"hits"`
	Denied float64     `json:"denied"`
}

// mostWhatIf is how many keys are named.
const mostWhatIf = 5

// ErrLimit is for a limit that no rule can have.
var ErrLimit = errors.New("want a limit of 1 or more")

// WhatIf computes what another limit of a rule would have done.
func (c *Console) WhatIf(rule string, limit int64) (WhatIf, error) {
	known := c.known()
	r, ok := known[rule]
	switch {
	case !ok:
		return WhatIf{}, unknown(rule, known)
	case limit < 1:
		return WhatIf{}, fmt.Errorf("%w, not %d", ErrLimit, limit)
	}
	c.picture.mu.Lock()
	defer c.picture.mu.Unlock()
	return c.picture.demand.whatIf(r.wire(), limit), nil
}

func (d *demand) whatIf(rule status.Rule, limit int64) WhatIf {
	w := WhatIf{Rule: rule, Limit: limit, Most: []WhatIfKey{}, TooLong: rule.WindowMS > minutes*60_000}
	if d.last == 0 {
		return w
	}
	first := max(d.began, d.last-minutes+1)
	w.Minutes = int(d.last - first + 1)
	for id, ring := range d.keys {
		if id.rule != rule.Name {
			continue
		}
		k := WhatIfKey{Key: status.Text(id.key)}
		k.Hits, k.Denied = denials(ring, first, d.last, rule.WindowMS, limit)
		_, asIs := denials(ring, first, d.last, rule.WindowMS, rule.Limit)
		w.Keys, w.Hits, w.Denied, w.AsIs = w.Keys+1, w.Hits+k.Hits, w.Denied+k.Denied, w.AsIs+asIs
		if k.Denied >= 1 {
			w.LimitedKeys++
			w.Most = append(w.Most, k)
		}
	}
	slices.SortFunc(w.Most, func(a, b WhatIfKey) int {
		return cmp.Or(cmp.Compare(b.Denied, a.Denied), cmp.Compare(a.Key, b.Key))
	})
	w.Most = w.Most[:min(len(w.Most), mostWhatIf)]
	w.Hits, w.Denied, w.AsIs = round(w.Hits), round(w.Denied), round(w.AsIs)
	return w
}

// denials plays the minutes of a key against a limit. Within a minute hits are taken to come
// evenly, so a window of less than a minute has its part of them; a longer one has room for what
// the minutes in it have left.
func denials(ring *[minutes]float64, first, last, windowMS, limit int64) (hits, denied float64) {
	span := max(windowMS/60_000, 1)
	perMinute := float64(limit) * max(60_000/float64(max(windowMS, 1)), 1)
	var admitted [minutes]float64
	for n := first; n <= last; n++ {
		room := perMinute
		for m := max(first, n-span+1); m < n; m++ {
			room -= admitted[m%minutes]
		}
		asked := ring[n%minutes]
		admitted[n%minutes] = min(asked, max(room, 0))
		hits, denied = hits+asked, denied+asked-admitted[n%minutes]
	}
	return hits, denied
}
