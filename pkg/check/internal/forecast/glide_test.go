package forecast

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// slope is a key at some distance from its limit.
func slope(room, freed, band float64) *Key { return &Key{room: room, freed: freed, band: band} }

// creep is glide in tiny steps, after its definition: of the hits a part of room/band + freed/d
// passes.
func creep(k *Key, d, span float64) (n float64) {
	const steps = 20_000
	for range steps {
		pass := d * min(max(k.room/k.band+k.freed/d, 0), 1) * span / steps
		n += pass
		k.room += k.freed*span/steps - pass
	}
	return n
}

// slopes draws a demand, and a key in one of the places where glide does different things.
func slopes(t *rapid.T) (k *Key, d, span float64) {
	d = rapid.Float64Range(0.001, 100).Draw(t, "demand")
	freed := d * rapid.SampledFrom([]float64{0, 0, 0.01, 0.2, 0.9, 1, 1.5, 4}).Draw(t, "freed")
	band := rapid.Float64Range(1, 100).Draw(t, "band")
	room := band * rapid.Float64Range(-4, 6).Draw(t, "room")
	if d <= freed { // when fewer come than leave, glide does not look at room that has been overdrawn
		room = math.Abs(room)
	}
	return slope(room, freed, band), d, band / d * rapid.Float64Range(0, 8).Draw(t, "span")
}

func TestGlideInOneStepIsGlideInMany(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k, d, span := slopes(t)
		tiny, many := *k, *k
		n, want, sum := k.glide(d, span), creep(&tiny, d, span), 0.0
		near(t, "hits, against tiny steps", n, want, 2e-3*want+0.01*k.band)
		near(t, "room, against tiny steps", k.room, tiny.room, 0.01*(k.band+math.Abs(tiny.room)))
		steps := rapid.IntRange(2, 50).Draw(t, "steps")
		for range steps {
			part := many.glide(d, span/float64(steps))
			require(t, part >= -1e-9 && part <= d*span/float64(steps)*(1+1e-9)+1e-9, "%v hits pass of %v", part, d*span/float64(steps))
			sum += part
		}
		near(t, "hits", sum, n, 1e-6*(1+n))
		near(t, "room", many.room, k.room, 1e-6*(1+math.Abs(k.room)))
	})
}

func TestGlideAtTheEdges(t *testing.T) {
	for _, test := range []struct {
		why           string
		k             *Key
		d, span       float64
		n, room, give float64
	}{
		{"no demand, while hits leave", slope(100, 2, 10), 0, 5, 0, 110, 0},
		{"much room, while hits leave", slope(100, 1, 10), 3, 5, 15, 90, 1e-9},
		{"in balance as many pass as leave", slope(0, 2, 10), 8, 5, 10, 0, 1e-9},
		{"overdrawn, and none leave: none pass", slope(-20, 0, 10), 8, 5, 0, -20, 0},
		{"overdrawn by far, while hits leave: none pass", slope(-100, 2, 10), 8, 5, 0, -90, 1e-9},
		{"into the band: 5 with all passing, then exponentially", slope(15, 0, 10), 10, 1.5, 15 - 10/math.E, 10 / math.E, 1e-9},
		{"as much room as there can be", slope(math.MaxFloat64, 0, 0), 10, 3, 30, math.MaxFloat64, 1e-9},
	} {
		near(t, test.why+": hits", test.k.glide(test.d, test.span), test.n, test.give)
		near(t, test.why+": room", test.k.room, test.room, test.give)
	}
}
