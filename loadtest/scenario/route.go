package scenario

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

// RouteKind is a way to choose the checker that a hit goes to.
type RouteKind uint8

// The ways.
const (
	// Random: any checker.
	Random RouteKind = iota
	// RoundRobin: each in turn.
	RoundRobin
	// Hash: always the same one for a key.
	Hash
	// Hop: the same one for a key for some time (Route.Every), then the next; only most hits
	// (Route.Share), if there is a share.
	Hop
	// Skew: most hits (Route.Share) go to the first checker, the others to any other.
	Skew
)

// Route is which checker a hit goes to.
type Route struct {
	Kind  RouteKind
	Every time.Duration // of Hop
	Share float64       // of Skew, 0 to 1; of Hop, 0 for all hits
}

// String describes the route.
func (r Route) String() string {
	switch r.Kind {
	case RoundRobin:
		return "round_robin"
	case Hash:
		return "hash"
	case Hop:
		if r.Share > 0 {
			return fmt.Sprintf("hop %v %g%%", r.Every, 100*r.Share)
		}
		return fmt.Sprintf("hop %v", r.Every)
	case Skew:
		return fmt.Sprintf("skew %g%%", 100*r.Share)
	}
	return "random"
}

func (r Route) validate() error {
	switch {
	case r.Kind > Skew:
		return fmt.Errorf("unknown route")
	case r.Kind == Hop && r.Every < time.Millisecond:
		return fmt.Errorf("route hop every %v: want at least 1ms", r.Every)
	case !(r.Share >= 0 && r.Share <= 1):
		return fmt.Errorf("route by a share of %v: want 0 to 1", r.Share)
	}
	return nil
}

// router chooses checkers.
type router struct {
	Route
	checkers int
	rand     *rand.Rand
	turn     int
}

// choose returns the checker for a hit of key at the given time.
func (r *router) choose(at int64, key int32) int32 {
	if r.checkers == 1 {
		return 0
	}
	n := r.checkers
	switch r.Kind {
	case RoundRobin:
		r.turn++
		return int32(r.turn % n)
	case Hash:
		return int32(scatter(key) % uint64(n))
	case Hop:
		first := int((scatter(key) + uint64(at/int64(r.Every))) % uint64(n))
		if r.Share == 0 {
			return int32(first)
		}
		return r.mostTo(first)
	case Skew:
		return r.mostTo(0)
	}
	return int32(r.rand.IntN(n))
}

// mostTo chooses the first checker for the route's share of the hits, and any other for the rest.
func (r *router) mostTo(first int) int32 {
	if r.rand.Float64() < r.Share {
		return int32(first)
	}
	return int32((first + 1 + r.rand.IntN(r.checkers-1)) % r.checkers)
}

// scatter is the finaliser of splitmix64: near keys go to different checkers.
func scatter(key int32) uint64 {
	x := uint64(key) + 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// ParseRoute reads random, round_robin, hash, "hop 200ms", "hop 3s 90%" or "skew 90%".
func ParseRoute(text string) (Route, error) {
	plain := map[string]RouteKind{"random": Random, "round_robin": RoundRobin, "hash": Hash}
	words := strings.Fields(text)
	r, err := Route{}, errors.New("unknown")
	switch kind, ok := plain[strings.Join(words, " ")]; {
	case ok:
		return Route{Kind: kind}, nil
	case len(words) < 2:
	case words[0] == "skew":
		r.Kind = Skew
		r.Share, err = parseShare(words[1:])
	case words[0] == "hop":
		r.Kind = Hop
		if r.Every, err = time.ParseDuration(words[1]); err == nil && len(words) > 2 {
			r.Share, err = parseShare(words[2:])
		}
	}
	if err != nil {
		return Route{}, fmt.Errorf(`%q: want random, round_robin, hash, "hop 200ms", "hop 3s 90%%" or "skew 90%%"`, text)
	}
	return r, r.validate()
}

func parseShare(words []string) (float64, error) {
	number, isPercent := strings.CutSuffix(words[0], "%")
	percent, err := strconv.ParseFloat(number, 64)
	if len(words) > 1 || !isPercent || err != nil {
		return 0, errors.New("want a percentage")
	}
	return percent / 100, nil
}
