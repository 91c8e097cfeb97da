package report

// The time line of a campaign: its faults, a row for each target, its rests and its violations.

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/offpath-io/offpath/loadtest/torture/found"
)

// A place is something on the time line; Left and Width are per cent of the width.
type place struct {
	Left, Width string
	Lane        int // from the top, where several lie above each other
	Kind        string
	Bad         bool
	Title       string
	Number      int // of a violation
}

func (v *campaignView) place(from, length float64) place {
	part := func(seconds float64) float64 { return 100 * min(max(seconds/v.end, 0), 1) }
	if !(v.end > 0) {
		return place{Left: "0", Width: "0"}
	}
	left := part(from)
	return place{Left: plain(left, 3), Width: plain(part(from+length)-left, 3)}
}

// A track is a row of the time line.
type track struct {
	Name   string
	Lanes  int
	Places []place
}

// Height of a track, in pixels.
func (t track) Height() int { return 6 + laneHeight*t.Lanes }

const laneHeight = 11

// Top is a place's, in pixels.
func (p place) Top() int { return 3 + laneHeight*p.Lane }

// Tracks are the faults, a row for each target: those between two parts are the links'.
func (v *campaignView) Tracks() []track {
	targets := map[string][]found.Fault{}
	for _, f := range v.Faults {
		row := f.Target
		if f.Kind == "partition" {
			row = "links"
		}
		targets[row] = append(targets[row], f)
	}
	var list []track
	for name, faults := range targets {
		list = append(list, v.track(name, faults))
	}
	order := []string{"nats", "redis", "aggregator", "checker", "links", "rules"}
	rank := func(name string) int {
		sort, _, _ := strings.Cut(name, "-")
		if i := slices.Index(order, sort); i >= 0 {
			return i
		}
		return len(order)
	}
	slices.SortFunc(list, func(a, b track) int {
		return cmp.Or(rank(a.Name)-rank(b.Name), len(a.Name)-len(b.Name), cmp.Compare(a.Name, b.Name))
	})
	return list
}

// track puts faults that last at the same time into lanes.
func (v *campaignView) track(name string, faults []found.Fault) track {
	t := track{Name: name}
	var ends []float64
	for _, f := range inTime(faults) {
		p := v.place(f.At, f.For)
		p.Kind, p.Title = f.Kind, v.tell(f)
		p.Lane = slices.IndexFunc(ends, func(end float64) bool { return end <= f.At })
		if p.Lane < 0 {
			p.Lane, ends = len(ends), append(ends, 0)
		}
		ends[p.Lane] = f.At + max(f.For, v.end/300) // a bar has a least width, too
		t.Places = append(t.Places, p)
	}
	t.Lanes = len(ends)
	return t
}

// inTime puts faults into order: a campaign tells them as they end.
func inTime(faults []found.Fault) []found.Fault {
	return slices.SortedStableFunc(slices.Values(faults), func(a, b found.Fault) int {
		return cmp.Compare(a.At, b.At)
	})
}

// tell is a fault in words.
func (v *campaignView) tell(f found.Fault) string {
	text := fmt.Sprintf("%s: %s at %s", f.Kind, f.Target, v.At(f.At))
	if f.For > 0 {
		text += " for " + scaled(f.For*1000, milliseconds)
	}
	if f.Detail != "" {
		text += ": " + f.Detail
	}
	return text
}

// Sorted are all faults in their order.
func (v *campaignView) Sorted() []found.Fault { return inTime(v.Faults) }

// A kindLine is a kind of faults in the legend.
type kindLine struct {
	Kind, Words string
	Count       int
}

// Kinds are those that were played, in an order that puts alike ones together.
func (v *campaignView) Kinds() []kindLine {
	list := []kindLine{
		{Kind: "kill", Words: "a process ends as in a crash, and is started again"},
		{Kind: "stop", Words: "a process is told to stop, and is started again"},
		{Kind: "version", Words: "a process is told to stop, and another version of it is started"},
		{Kind: "pause", Words: "a process, or Redis, stands still"},
		{Kind: "partition", Words: "no byte passes between two parts, in one direction or both"},
		{Kind: "slow", Words: "all links of a part have delay, jitter, loss, or little bandwidth"},
		{Kind: "cut", Words: "all connections of a part are closed, once"},
		{Kind: "restart", Words: "Redis stops and starts, and keeps its data"},
		{Kind: "lose", Words: "Redis loses all its data"},
		{Kind: "rollback", Words: "Redis goes back to an older snapshot"},
		{Kind: "full", Words: "Redis takes no more data"},
		{Kind: "disk", Words: "Redis cannot save its data, and takes no more"},
		{Kind: "readonly", Words: "Redis takes no more data, as one without replicas, or as a replica"},
		{Kind: "storeclock", Words: "the clock of Redis is set"},
		{Kind: "rules", Words: "a limit changes, or the file of the rules is invalid for a while"},
		{Kind: "clock", Words: "a checker is killed, and its clock is wrong when it starts"},
		{Kind: "secrets", Words: "passwords and certificates change while all is running"},
		{Kind: "failover", Words: "a master of Redis hands over to its replica, as planned"},
		{Kind: "drill", Words: "one state, brought about for a while"},
	}
	for _, f := range v.Faults {
		i := slices.IndexFunc(list, func(k kindLine) bool { return k.Kind == f.Kind })
		if i < 0 { // a new kind is shown without words
			i, list = len(list), append(list, kindLine{Kind: f.Kind})
		}
		list[i].Count++
	}
	return slices.DeleteFunc(list, func(k kindLine) bool { return k.Count == 0 })
}

// A round is the faults until a rest, and the rest after them, which lasts to the next fault.
type round struct {
	found.Rest
	place
	Faults int
	After  string
}

// Rested are the rounds that came to their end.
func (v *campaignView) Rested() (list []round) {
	faults := v.Sorted()
	for _, r := range v.Rests {
		n := slices.IndexFunc(faults, func(f found.Fault) bool { return f.At > r.At })
		until := v.end
		if n >= 0 {
			until = faults[n].At
		} else {
			n = len(faults)
		}
		p := v.place(r.At, until-r.At)
		p.Bad = r.After < 0
		list = append(list, round{r, p, n, restAfter(r.After)})
		faults = faults[n:]
	}
	return list
}

func restAfter(seconds float64) string {
	if seconds < 0 {
		return "not in time"
	}
	return scaled(seconds*1000, milliseconds)
}

// slowestRest is the longest that it took to come to rest.
func (v *campaignView) slowestRest() string {
	slowest := 0.0
	for _, r := range v.Rests {
		if r.After < 0 {
			return restAfter(r.After)
		}
		slowest = max(slowest, r.After)
	}
	return restAfter(slowest)
}

// Broken are the violations, a row for each promise.
func (v *campaignView) Broken() (list []track) {
	for i, violation := range v.Violations {
		n := slices.IndexFunc(list, func(t track) bool { return t.Name == violation.What })
		if n < 0 {
			n, list = len(list), append(list, track{Name: violation.What})
		}
		p := v.place(violation.At, 0)
		p.Number, p.Title = v.Number(i), v.At(violation.At)+": "+violation.Text
		list[n].Places = append(list[n].Places, p)
	}
	return list
}

// Number is a violation's, from its place in the list.
func (*campaignView) Number(i int) int { return i + 1 }
