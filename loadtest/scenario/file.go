package scenario

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/offpath-io/offpath/pkg/rules"
)

// maxFile is the most bytes of a scenario file.
const maxFile = 1 << 20

// Load reads a scenario from a YAML file. Its rules are written as in a rules file. What the
// settings say of the fleet, the flush and the duration beats the file; a limit, a window, a load,
// a number of keys or a cost there is refused, since the file may have several. Errors are
// *rules.Error, with the line, or those of reading.
func Load(path string, s Settings) (Scenario, error) {
	file, err := read(path)
	if err != nil {
		return Scenario{}, fmt.Errorf("load scenario: %w", err)
	}
	sc, err := parse(file)
	if err == nil {
		err = sc.apply(s)
	}
	if err == nil {
		if invalid := sc.Validate(); invalid != nil {
			err = &rules.Error{Reason: invalid.Error()}
		}
	}
	if refusal, ok := errors.AsType[*rules.Error](err); ok {
		refusal.File = path
	}
	if sc.Name == "" {
		sc.Name = strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
	}
	return sc, err
}

func read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxFile+1)) // parse refuses the one byte more
}

// apply lets the settings beat what the file says.
func (s *Scenario) apply(g Settings) error {
	if g.Algorithm != nil || g.Burst != nil {
		return &rules.Error{Reason: "algorithm and burst cannot be given beside a file"}
	}
	if g.Limit != nil || g.Window != nil || g.Buckets != nil || g.Load != nil || g.Keys != nil ||
		g.Cost != nil {
		return &rules.Error{Reason: "limit, window, buckets, load, keys and cost are said in the " +
			"file: they cannot be given beside it"}
	}
	s.Duration = or(g.Duration, s.Duration)
	g.Fleet(s)
	return nil
}

func parse(file []byte) (Scenario, error) {
	sc := Scenario{
		Description: "a scenario of the user's own",
		Checkers:    DefaultCheckers, Aggregators: DefaultAggregators, Flush: DefaultFlush,
		Duration: -1, Warmup: -1,
	}
	if len(file) > maxFile {
		return sc, &rules.Error{Reason: fmt.Sprintf("the file has more than %d bytes", maxFile)}
	}
	var root yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(file))
	switch err := decoder.Decode(&root); {
	case errors.Is(err, io.EOF):
		return sc, &rules.Error{Line: 1, Column: 1, Reason: "there is no scenario in the file"}
	case err != nil:
		return sc, syntaxError(file, err)
	}
	var second yaml.Node
	switch err := decoder.Decode(&second); {
	case errors.Is(err, io.EOF):
	case err != nil: // which names the line
		return sc, &rules.Error{Reason: "want one scenario, and nothing after it: " + err.Error()}
	default:
		return sc, errorAt(&second, "want one scenario, and nothing after it")
	}
	if err := plain(&root); err != nil {
		return sc, err
	}
	top, err := fieldsOf(root.Content[0], "scenario", []string{"rules", "streams"},
		"name", "description", "warmup", "duration", "checkers", "aggregators", "flush", "timer_only", "rules", "streams")
	if err != nil {
		return sc, err
	}
	if err := sc.readTop(top); err != nil {
		return sc, err
	}
	set, err := rules.Parse(onlyRules(file, root.Content[0]))
	if err != nil {
		return sc, err
	}
	for _, r := range set.Rules() {
		sc.Rules = append(sc.Rules, *r)
	}
	if err := sc.readStreams(top["streams"]); err != nil {
		return sc, err
	}
	if sc.Warmup < 0 {
		sc.Warmup = 2 * sc.Longest()
	}
	if sc.Duration < 0 {
		sc.Duration = max(DefaultDuration, 2*sc.Longest())
	}
	return sc, nil
}

// unknownAnchor is the one error of syntax in which the library names no line.
var unknownAnchor = regexp.MustCompile(`unknown anchor '([^']*)'`)

// syntaxError puts an error of the YAML library into ours.
func syntaxError(file []byte, err error) error {
	refusal := &rules.Error{Reason: err.Error()}
	if name := unknownAnchor.FindStringSubmatch(err.Error()); name != nil {
		before, _, _ := bytes.Cut(file, []byte("*"+name[1]))
		refusal.Line = bytes.Count(before, []byte("\n")) + 1
		refusal.Column = len(before) - bytes.LastIndexByte(before, '\n')
	}
	return refusal
}

// onlyRules returns the file with nothing in it but its rules, on the lines where they are.
func onlyRules(file []byte, top *yaml.Node) []byte {
	from, to := 0, 1<<30 // lines, from 1
	for i := 0; i < len(top.Content); i += 2 {
		switch {
		case top.Content[i].Value == "rules":
			from = top.Content[i].Line
		case from > 0 && to == 1<<30:
			to = top.Content[i].Line
		}
	}
	var kept bytes.Buffer
	number := 0
	for line := range bytes.Lines(file) {
		if number++; number >= from && number < to {
			kept.Write(line)
		} else {
			kept.WriteByte('\n')
		}
	}
	return kept.Bytes()
}

func (s *Scenario) readTop(top fields) error {
	for _, f := range []struct {
		name string
		read func(*yaml.Node) error
	}{
		{"name", into(&s.Name, text)},
		{"description", into(&s.Description, text)},
		{"warmup", into(&s.Warmup, duration)},
		{"duration", into(&s.Duration, duration)},
		{"checkers", into(&s.Checkers, whole)},
		{"aggregators", into(&s.Aggregators, whole)},
		{"flush", into(&s.Flush, duration)},
		{"timer_only", into(&s.TimerOnly, boolean)},
	} {
		if node := top[f.name]; node != nil {
			if err := f.read(node); err != nil {
				return errorAt(node, "%s: %v", f.name, err)
			}
		}
	}
	switch {
	case s.Flush < time.Millisecond || s.Flush > time.Minute:
		return errorAt(top["flush"], "flush: %v: want 1ms to 1m", s.Flush)
	case s.Checkers < 1 || s.Checkers > MaxCheckers:
		return errorAt(top["checkers"], "checkers: %d: want 1 to %d", s.Checkers, MaxCheckers)
	case s.Aggregators < 1 || s.Aggregators > MaxAggregators:
		return errorAt(top["aggregators"], "aggregators: %d: want 1 to %d", s.Aggregators, MaxAggregators)
	case top["duration"] != nil && (s.Duration <= 0 || s.Duration > MaxDuration/2):
		return errorAt(top["duration"], "duration: %v: want more than 0, at most %v", s.Duration, MaxDuration/2)
	case top["warmup"] != nil && (s.Warmup < 0 || s.Warmup > MaxDuration/2):
		return errorAt(top["warmup"], "warmup: %v: want 0 to %v", s.Warmup, MaxDuration/2)
	}
	return nil
}

func (s *Scenario) readStreams(list *yaml.Node) error {
	if list.Kind != yaml.SequenceNode || len(list.Content) == 0 || len(list.Content) > maxStreams {
		return errorAt(list, "streams: want a list of 1 to %d", maxStreams)
	}
	for _, node := range list.Content {
		st, err := s.readStream(node)
		if err != nil {
			return err
		}
		if err := st.validate(s.Rules); err != nil {
			return errorAt(node, "stream: %v", err)
		}
		s.Streams = append(s.Streams, st)
	}
	return nil
}

func (s *Scenario) readStream(node *yaml.Node) (st Stream, err error) {
	f, err := fieldsOf(node, "stream", nil,
		"rule", "keys", "zipf", "load", "rate", "phases", "route", "cost")
	if err != nil {
		return st, err
	}
	if st.Rule, err = s.readRule(f["rule"], node); err != nil {
		return st, err
	}
	st.Keys = 1
	if keys := f["keys"]; keys != nil {
		if st.Keys, err = readKeys(keys); err != nil {
			return st, err
		}
	}
	if zipf := f["zipf"]; zipf != nil {
		if err := into(&st.Zipf, number)(zipf); err != nil {
			return st, errorAt(zipf, "zipf: %v", err)
		}
	}
	if route := f["route"]; route != nil {
		if st.Route, err = ParseRoute(route.Value); err != nil {
			return st, errorAt(route, "route: %v", err)
		}
	}
	if cost := f["cost"]; cost != nil {
		if st.Cost, err = ParseCost(cost.Value); err != nil {
			return st, errorAt(cost, "cost: %v", err)
		}
	}
	unit := rateOf(s.Rules[st.Rule], 1, max(st.Keys, 1))
	if phases := f["phases"]; phases != nil {
		if f["load"] != nil || f["rate"] != nil {
			return st, errorAt(phases, "phases: want these, or a load or a rate, not both")
		}
		st.Phases, err = readPhases(phases, unit)
		return st, err
	}
	from, to, err := readRate(node, f, unit)
	st.Phases = []Phase{{Least: time.Hour, Most: time.Hour, From: from, To: to}}
	if err == nil && from != to {
		err = errorAt(node, "a rate that changes needs phases, which say for how long")
	}
	return st, err
}

// readRule returns the index of the rule that a stream names; a single rule need not be named.
func (s *Scenario) readRule(name, stream *yaml.Node) (int, error) {
	if name == nil {
		if len(s.Rules) > 1 {
			return 0, errorAt(stream, "stream: want a rule: there are %d", len(s.Rules))
		}
		return 0, nil
	}
	for i := range s.Rules {
		if s.Rules[i].Name == name.Value {
			return i, nil
		}
	}
	return 0, errorAt(name, "rule: %q: there is no such rule", name.Value)
}

func readKeys(node *yaml.Node) (int, error) {
	if node.Value == "new" {
		return 0, nil
	}
	n, err := whole(node)
	if err != nil || n < 1 || n > MaxKeys {
		return 0, errorAt(node, "keys: %q: want 1 to %d, or new for a new one with each hit", node.Value, MaxKeys)
	}
	return n, nil
}

func readPhases(list *yaml.Node, unit float64) ([]Phase, error) {
	if list.Kind != yaml.SequenceNode || len(list.Content) == 0 {
		return nil, errorAt(list, "phases: want a list of them")
	}
	var phases []Phase
	for _, node := range list.Content {
		f, err := fieldsOf(node, "phase", []string{"for"}, "for", "load", "rate")
		if err != nil {
			return nil, err
		}
		var p Phase
		if p.Least, p.Most, err = readRange(f["for"].Value, time.ParseDuration); err != nil {
			return nil, errorAt(f["for"], "for: %q: want a duration, or a range such as 450ms..1s", f["for"].Value)
		}
		if p.From, p.To, err = readRate(node, f, unit); err != nil {
			return nil, err
		}
		if err := p.validate(); err != nil {
			return nil, errorAt(node, "phase: %v", err)
		}
		phases = append(phases, p)
	}
	return phases, nil
}

// readRate reads load, which is in times unit, or rate, which is in hits per second.
func readRate(node *yaml.Node, f fields, unit float64) (from, to float64, err error) {
	name, value := "load", f["load"]
	if value == nil {
		name, value, unit = "rate", f["rate"], 1
	}
	if value == nil || f["load"] != nil && f["rate"] != nil {
		return 0, 0, errorAt(node, "want a load, in times the limit for each key, or a rate, in hits per second")
	}
	from, to, err = readRange(value.Value, parseNumber)
	if err != nil || from < 0 || to < 0 {
		return 0, 0, errorAt(value, "%s: %q: want a number, or a range such as 0..5", name, value.Value)
	}
	return from * unit, to * unit, nil
}

// ParseCost reads what a request costs: a number of hits, or a range such as 1..50.
func ParseCost(text string) (c Cost, err error) {
	from, to, err := readRange(text, strconv.Atoi)
	if err != nil || from < 1 || to < from || to > maxCost {
		return c, fmt.Errorf("%q: want 1 to %d hits, or a range such as 1..50", text, maxCost)
	}
	return Cost{int32(from), int32(to)}, nil
}

// readRange reads one value, or two with .. between.
func readRange[T any](text string, parse func(string) (T, error)) (from, to T, err error) {
	first, second, ok := strings.Cut(text, "..")
	if from, err = parse(strings.TrimSpace(first)); err != nil || !ok {
		return from, from, err
	}
	to, err = parse(strings.TrimSpace(second))
	return from, to, err
}
