package report

import (
	"cmp"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/offpath-io/offpath/loadtest/result"
)

// nameOf is a run's name, on one line whatever a scenario file says.
func nameOf(r result.Run) string {
	name := oneLine(cmp.Or(r.Scenario, "(no name)"))
	if r.Variant != "" {
		name += " · " + oneLine(r.Variant)
	}
	return name
}

// oneLine keeps what would move a terminal's cursor out of names.
func oneLine(text string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, text))
}

// sentence makes one of a scenario's description, which may be a few words.
func sentence(text string) string {
	text = oneLine(text)
	if text == "" {
		return ""
	}
	first, size := utf8.DecodeRuneInString(text)
	text = string(unicode.ToUpper(first)) + text[size:]
	if !strings.HasSuffix(text, ".") {
		text += "."
	}
	return text
}

// where is the machine and the program in one line.
func where(f result.File) string {
	m := f.Machine
	parts := []string{"offpath " + cmp.Or(f.Offpath, "of unknown version")}
	if m.CPU != "" {
		parts = append(parts, m.CPU)
	}
	parts = append(parts, counted(m.Cores, "core"), m.OS+"/"+m.Arch, m.Go)
	return oneLine(strings.Join(parts, ", "))
}

// counted is a number and its noun.
func counted[N int | int64](n N, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return count(int64(n)) + " " + noun
}

// inWords is what a run was asked for, a sentence each.
func inWords(r result.Run) []string {
	p := r.Params
	list := []string{fleet(p)}
	list = append(list, rulesInWords(p)...)
	list = append(list, load(p), messages(p))
	if p.Faults != "" {
		list = append(list, "Faults: "+oneLine(p.Faults)+".")
	}
	return append(list, fmt.Sprintf("%s measured, after %s of warm-up that is in no figure but the conservation’s; seed %d.",
		scaled(r.MeasuredSeconds*1000, milliseconds), scaled(p.WarmupS*1000, milliseconds), p.Seed))
}

func fleet(p result.Params) string {
	store := map[string]string{"memory": "in memory", "redis": "in Redis"}[p.Store]
	return fmt.Sprintf("%s and %s, counting %s.", counted(p.Checkers, "checker"), counted(p.Aggregators, "aggregator"),
		cmp.Or(store, "in "+cmp.Or(oneLine(p.Store), "a store that is not named")))
}

// rulesInWords spells out at most three rules; more would push the figures off the screen.
func rulesInWords(p result.Params) []string {
	const most = 3
	var list []string
	for i, rule := range p.Rules {
		if i == most {
			return append(list, fmt.Sprintf("And %s more.", counted(len(p.Rules)-most, "rule")))
		}
		list = append(list, fmt.Sprintf("Rule %s: %s per %s, %s%s.",
			oneLine(rule.Name), counted(rule.Limit, "hit"), scaled(rule.WindowMS, milliseconds), algorithm(rule), enforcement(rule)))
	}
	if len(list) == 0 {
		list = append(list, fmt.Sprintf("Limit: %s per %s.", counted(p.Limit, "hit"), scaled(p.WindowMS, milliseconds)))
	}
	return list
}

func algorithm(rule result.Rule) string {
	switch name := strings.ReplaceAll(oneLine(rule.Algorithm), "_", " "); {
	case strings.HasPrefix(name, "fixed"):
		return "a fixed window"
	case rule.Buckets > 1:
		return fmt.Sprintf("a %s in %d buckets", cmp.Or(name, "window"), rule.Buckets)
	case strings.HasPrefix(name, "sliding"):
		return "a sliding window of two counters"
	default:
		return "a " + cmp.Or(name, "window")
	}
}

func enforcement(rule result.Rule) string {
	if rule.Enforcement == "strict" {
		return ", strictly enforced"
	}
	return ""
}

func load(p result.Params) string {
	keys := "over " + counted(p.Keys, "key")
	if p.Cost != "" {
		keys += ", in requests that cost " + oneLine(p.Cost)
	}
	switch {
	case p.Speed > 0:
		return fmt.Sprintf("The log is replayed at %s times its speed, %s.", quantity(p.Speed), keys)
	case p.Load > 0:
		return fmt.Sprintf("The scenario’s load is %s times the limit, %s.", quantity(p.Load), keys)
	default:
		return fmt.Sprintf("The load changes as the scenario says, %s.", keys)
	}
}

func messages(p result.Params) string {
	early := "or sooner when there is reason to"
	if !p.EarlyFlush {
		early = "never sooner"
	}
	text := fmt.Sprintf("Checkers flush every %s, %s", scaled(p.FlushMS, milliseconds), early)
	switch {
	case p.JitterMS > 0:
		text += fmt.Sprintf("; messages take %s, and up to %s more", scaled(p.DelayMS, milliseconds), scaled(p.JitterMS, milliseconds))
	case p.DelayMS > 0:
		text += fmt.Sprintf("; messages take %s", scaled(p.DelayMS, milliseconds))
	}
	return text + "."
}

// alarms are what a reader must not overlook: runs that were stopped, and hits that are not
// accounted for.
func alarms(f result.File) []string {
	var list []string
	for _, r := range f.Runs {
		list = append(list, alarmsOf(r)...)
	}
	return list
}

func alarmsOf(r result.Run) []string {
	var list []string
	if r.Interrupted {
		list = append(list, fmt.Sprintf("INTERRUPTED: %s was stopped after %s of %s; its figures are of that part.",
			nameOf(r), scaled(r.MeasuredSeconds*1000, milliseconds), scaled(r.Params.DurationS*1000, milliseconds)))
	}
	if !r.Conservation.Holds {
		list = append(list, fmt.Sprintf("CONSERVATION DOES NOT HOLD: %s: %s.", nameOf(r), missing(r.Conservation)))
	}
	return list
}

// missing says which of the two equations of conservation is broken, and by how much.
func missing(c result.Conservation) string {
	var list []string
	if c.Admitted != c.Charged {
		list = append(list, fmt.Sprintf("%s admitted, but %s charged (%s)", count(c.Admitted), count(c.Charged), off(c.Charged-c.Admitted)))
	}
	if c.Charged != c.Stored {
		list = append(list, fmt.Sprintf("%s charged, but %s accounted for (%s)", count(c.Charged), count(c.Stored), off(c.Stored-c.Charged)))
	}
	if len(list) == 0 {
		return "the run says so, although its sums agree"
	}
	return strings.Join(list, "; ")
}

func off(difference int64) string {
	if difference < 0 {
		return count(-difference) + " missing"
	}
	return count(difference) + " too many"
}
