package scenario

import (
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
	// Hop: the same one for a key for some time (Route.Every), then the next.
	Hop
	// Skew: most hits (Route.Share) go to the first checker, the others to any other.
	Skew
)

// Route is which checker a hit goes to.
type Route struct {
	Kind  RouteKind
	Every time.Duration // of Hop
	Share float64       // of Skew, 0 to 1
}

// String describes the route.
func (r Route) String() string {
	switch r.Kind {
	case RoundRobin:
		return "round_robin"
	case Hash:
		return "hash"
	case Hop:
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
	case r.Kind == Skew && !(r.Share >= 0 && r.Share <= 1):
		return fmt.Errorf("route skew by %v: want 0 to 1", r.Share)
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
		return int32((scatter(key) + uint64(at/int64(r.Every))) % uint64(n))
	case Skew:
		if r.rand.Float64() < r.Share {
			return 0
		}
		return int32(1 + r.rand.IntN(n-1))
	}
	return int32(r.rand.IntN(n))
}

// scatter is the finaliser of splitmix64: near keys go to different checkers.
func scatter(key int32) uint64 {
	x := uint64(key) + 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// ParseRoute reads random, round_robin, hash, "hop 200ms" or "skew 90%".
func ParseRoute(text string) (Route, error) {
	kind, rest, _ := strings.Cut(strings.TrimSpace(text), " ")
	rest = strings.TrimSpace(rest)
	plain := map[string]RouteKind{"random": Random, "round_robin": RoundRobin, "hash": Hash}
	if k, ok := plain[kind]; ok && rest == "" {
		return Route{Kind: k}, nil
	}
	if every, err := time.ParseDuration(rest); kind == "hop" && err == nil {
		r := Route{Kind: Hop, Every: every}
		return r, r.validate()
	}
	share, isShare := strings.CutSuffix(rest, "%")
	if percent, err := strconv.ParseFloat(share, 64); kind == "skew" && isShare && err == nil {
		r := Route{Kind: Skew, Share: percent / 100}
		return r, r.validate()
	}
	return Route{}, fmt.Errorf(`%q: want random, round_robin, hash, "hop 200ms" or "skew 90%%"`, text)
}
