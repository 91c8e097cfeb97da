package shares

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

func TestDivide(t *testing.T) {
	for _, c := range []struct {
		name    string
		pool    float64
		demands []float64
		want    []float64
	}{
		{"nobody demands anything: all alike", 90, []float64{0, 0, 0}, []float64{30, 30, 30}},
		{"one has it all", 90, []float64{7}, []float64{90}},
		{"enough: demands, and the rest half alike and half by demand", 100, []float64{10, 30}, []float64{10 + 15 + 7.5, 30 + 15 + 22.5}},
		{"just enough", 40, []float64{10, 30}, []float64{10, 30}},
		{"too little: small demands are met, large ones are cut to one level", 100, []float64{10, 500, 60}, []float64{10, 45, 45}},
		{"far too little", 3, []float64{10, 500, 60}, []float64{1, 1, 1}},
		{"nothing", 0, []float64{10, 0}, []float64{0, 0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := Divide(c.pool, c.demands)
			for i, want := range c.want {
				if got := d.Share(c.demands[i]); math.Abs(got-want) > 1e-9 {
					t.Errorf("share %d: got %v, want %v", i, got, want)
				}
			}
		})
	}
	if got := Divide(10, nil); got != (Division{}) {
		t.Errorf("among nobody: got %v", got)
	}
}

func TestDivideProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pool := rapid.Float64Range(0, 1e15).Draw(t, "pool")
		demands := rapid.SliceOfN(rapid.Float64Range(0, 1e12), 1, 50).Draw(t, "demands")
		d := Divide(pool, demands)
		sum, demanded := 0.0, 0.0
		for _, x := range demands {
			demanded += x
			sum += d.Share(x)
		}
		if math.Abs(sum-pool) > 1e-9*pool+1e-9 {
			t.Fatalf("shares come to %v of %v", sum, pool)
		}
		for _, x := range demands {
			switch share := d.Share(x); {
			case demanded <= pool && share < x*(1-1e-12):
				t.Fatalf("there is enough, and a demand of %v gets %v", x, share)
			case x <= pool/float64(len(demands)) && share < x*(1-1e-9):
				t.Fatalf("a demand of %v below an equal part gets %v", x, share)
			}
		}
	})
}
