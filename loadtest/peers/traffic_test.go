package peers

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
)

// A traffic is a sequence of hits, drawn beforehand so that drawing costs nothing. As in a service, the
// text of a key has just been read (it is next to the one before), and is a copy of its own, not the
// very string that the limiter keeps.
type traffic struct {
	name string
	hits []string // the key of each
	keys []string // each key once, in the order of its first hit
}

// A draw is how many keys there are and how many hits of them are drawn.
type draw struct{ keys, hits int }

var (
	inProcess   = draw{keys: 1_000_000, hits: 1 << 22}
	overNetwork = draw{keys: 100_000, hits: 1 << 20}
)

// drawn holds the traffics that have been drawn, by name and size: they are the same in every row.
var drawn sync.Map

// traffic returns one by its name: hot is one key, uniform and zipf (s = 1.1) are all of them.
func (d draw) traffic(name string) *traffic {
	type id struct {
		draw
		name string
	}
	once, _ := drawn.LoadOrStore(id{d, name}, sync.OnceValue(func() *traffic { return d.make(name) }))
	return once.(func() *traffic)()
}

func (d draw) make(name string) *traffic {
	r := rand.New(rand.NewPCG(1, 2))
	next := func() int { return 0 }
	switch name {
	case "uniform":
		next = func() int { return r.IntN(d.keys) }
	case "zipf":
		zipf := rand.NewZipf(r, 1.1, 1, uint64(d.keys-1))
		next = func() int { return int(zipf.Uint64()) }
	}
	t := &traffic{name: name, hits: make([]string, d.hits)}
	seen := make([]bool, d.keys)
	var all strings.Builder
	all.Grow(d.hits * len(keyText(0))) // what is there stays where it is
	for i := range t.hits {
		key, from := next(), all.Len()
		all.WriteString(keyText(key))
		t.hits[i] = all.String()[from:]
		if !seen[key] {
			seen[key] = true
			t.keys = append(t.keys, t.hits[i])
		}
	}
	return t
}

func keyText(key int) string { return fmt.Sprintf("user:%06d", key) }

func TestTraffic(t *testing.T) {
	d := draw{keys: 1000, hits: 20_000}
	for _, test := range []struct {
		name     string
		min, max int // keys
		hottest  float64
	}{
		{"hot", 1, 1, 1},
		{"zipf", 300, 1000, 0.12},
		{"uniform", 1000, 1000, 0.001},
	} {
		got := d.traffic(test.name)
		count := make(map[string]int)
		for _, key := range got.hits {
			count[key]++
		}
		if len(got.hits) != d.hits || len(got.keys) != len(count) || len(count) < test.min || len(count) > test.max {
			t.Errorf("%s: %d hits of %d keys, %d of them listed; want %d hits of %d to %d keys",
				test.name, len(got.hits), len(count), len(got.keys), d.hits, test.min, test.max)
		}
		if share := float64(count[keyText(0)]) / float64(d.hits); share < test.hottest/2 || share > 2*test.hottest {
			t.Errorf("%s: the first key has %.4f of the hits, want about %.4f", test.name, share, test.hottest)
		}
		if d.traffic(test.name) != got {
			t.Errorf("%s is drawn twice", test.name)
		}
	}
}
