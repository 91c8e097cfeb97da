package peers

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
)

// A traffic is a sequence of hits, drawn beforehand so that drawing costs nothing. As in a service,
// the text of a key has just been read (it is next to the one before), and is a copy of its own,
// not the very string that the limiter keeps.
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
