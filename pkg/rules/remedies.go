package rules

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/offpath-io/offpath/pkg/rules/internal/strictyaml"
	"github.com/offpath-io/offpath/pkg/window"
)

// What to write instead of a mistake: a remedy begins with ": ", and "" is none.

// remedies are those for the shape of a file and for its fields.
var remedies = strictyaml.Remedies{
	Shapes: map[string]string{
		"":          "rules: and below it the list of rules",
		"rule":      "{name: per-user, key: [user], limit: 15/second}",
		"rules":     "a dash before the name of each rule",
		"match":     "{method: POST}, for example",
		"match/":    "one rule for each value, or a prefix such as /v1/*",
		"exclude":   "{path: [/health]}, for example",
		"key":       "[user], for example, or [] for one counter for all",
		"replaces":  "[other], the names of other rules",
		"soft":      "{exceed: 10%}",
		"elastic":   "{up_to: 200%, while: {rule: other, below: 70%}}",
		"while":     "{rule: other, below: 70%}",
		"overrides": "[{match: {tier: gold}, limit: 10x}]",
		// An entry of the list:
		"overrides/": "{match: {tier: gold}, limit: 10x}",
		"allow":      "{user: [admin]}, for example",
		"deny":       "{ip: [198.51.100.0/24]}, for example",
		"priority":   "{by: class, shares: {critical: 100%, default: 90%}}",
		"shares":     "{critical: 100%, default: 90%}",
	},
	Fields:  fieldRemedies(),
	Outside: ": fields of a rule stand below rules:, after a dash for each rule",
}

// fieldRemedies are the remedies for fields of other limiters.
func fieldRemedies() map[string]string {
	all := make(map[string]string)
	for remedy, names := range map[string]string{
		"limit has the number and the time: write limit: 100/minute": "rate quota max requests " +
			"requests_per_unit unit window period interval duration rate_limit",
		"write key: [user], with the attributes that tell callers apart": "by per per_key group_by key_by entity",
		"did you mean \"match\"?":                                     "when where if condition conditions filter",
		"did you mean \"exclude\"?":                                   "except unless not ignore",
		"did you mean \"allow\"?":                                     "allowlist allow_list whitelist",
		"did you mean \"deny\"?":                                      "denylist deny_list blocklist block_list blacklist block",
		"did you mean \"shadow\"?":                                    "dry_run shadow_mode log_only",
		"did you mean \"cost\"?":                                      "weight hits hits_addend tokens",
		"write a comment instead, after a #":                          "description comment note",
		"attributes stand in match: {path: /v1/*}, or in key: [user]": "method path ip user host header",
		"did you mean \"overrides\"?":                                 "exceptions custom tiers",
		"did you mean \"status\"?":                                    "status_code code http_status",
		"did you mean \"max_wait\"?":                                  "timeout wait",
		"did you mean \"max_depth\"?":                                 "queue_size queue",
		"write soft: {exceed: 10%}":                                   "exceed",
		"write it in elastic: {up_to: 200%, …}":                       "up_to while below",
	} {
		for name := range strings.FieldsSeq(names) {
			all[name] = remedy
		}
	}
	return all
}

// spelling replaces words of limits and times by those that limits have.
var spelling = []struct{ word, by string }{
	{"milliseconds", "ms"}, {"millisecond", "ms"}, {"msec", "ms"},
	{"seconds", "s"}, {"second", "s"}, {"secs", "s"}, {"sec", "s"},
	{"minutes", "m"}, {"minute", "m"}, {"mins", "m"}, {"min", "m"},
	{"hours", "h"}, {"hour", "h"}, {"hrs", "h"}, {"hr", "h"},
	{"days", "d"}, {"day", "d"}, {"weeks", "w"}, {"week", "w"}, {"wk", "w"},
}

// limitRemedy says how to write a limit that was written in another way.
func limitRemedy(text string) string {
	switch plain := strings.ToLower(strings.TrimSpace(text)); plain {
	case "unlimited", "none", "inf", "infinite", "-1":
		return ": write unlimited: true, and no limit"
	case "blocked", "block", "deny", "0":
		return ": to deny callers, write an override with limit: blocked"
	}
	number, per, ok := splitLimit(text)
	if !ok {
		if _, _, err := parseLimit("100/" + per); err == nil {
			return ": write 100/" + per + ", for example"
		}
		return ""
	}
	hits := hitsOf(number)
	if hits == 0 {
		return zeroRemedy(number)
	}
	switch per {
	case "":
		return fmt.Sprintf(": write %d/second, or another time such as %[1]d/10m", hits)
	case "month", "months", "mo", "mon":
		return fmt.Sprintf(": months differ in length, and windows do not: write %d/30d", hits)
	case "year", "years", "yr", "y":
		return fmt.Sprintf(": years differ in length, and windows do not: write %d/365d", hits)
	}
	for _, candidate := range []string{nearestUnit(per), per, spelled(per)} {
		if _, _, err := parseLimit(fmt.Sprintf("%d/%s", hits, candidate)); err == nil {
			return fmt.Sprintf(": write %d/%s", hits, candidate)
		}
	}
	if _, err := parseSpan(per + "h"); err == nil { // it is a number
		return fmt.Sprintf(": write %d/%ss, %[1]d/%[2]sm or %[1]d/%[2]sh", hits, per)
	}
	return ""
}

// splitLimit divides what is meant as a limit into its number and its time: 10/sec, 10 per second,
// 10rps, 10 requests/second.
func splitLimit(text string) (number, per string, ok bool) {
	text = strings.ToLower(strings.TrimSpace(text))
	for word, by := range map[string]string{"rps": "/second", "rpm": "/minute", "rph": "/hour", "qps": "/second"} {
		if before, found := strings.CutSuffix(text, word); found {
			text = before + by
		}
	}
	number, per, found := strings.Cut(text, "/")
	if !found {
		number, per, found = strings.Cut(text, " per ")
	}
	if !found {
		number = text
	}
	number = strings.TrimSpace(number)
	for _, word := range []string{"requests", "request", "reqs", "req", "hits", "hit", "r"} {
		if before, cut := strings.CutSuffix(number, word); cut {
			number = strings.TrimSpace(before)
			break
		}
	}
	per, _, _ = strings.Cut(strings.TrimSpace(per), "/")
	return number, strings.ReplaceAll(per, " ", ""), number != ""
}

// hitsOf is the number of hits that is meant, 0 for none.
func hitsOf(number string) int64 {
	number = strings.NewReplacer("_", "", ",", "", "'", "", " ", "").Replace(strings.TrimPrefix(number, "+"))
	scale := 1.0
	for suffix, by := range map[string]float64{"k": 1e3, "m": 1e6} {
		if before, ok := strings.CutSuffix(number, suffix); ok {
			number, scale = before, by
		}
	}
	value, err := strconv.ParseFloat(number, 64)
	if value *= scale; err != nil || value < 1 || value > float64(window.MaxCount) || value != math.Trunc(value) {
		return 0
	}
	return int64(value)
}

// zeroRemedy is for a number of hits that is less than one, or none.
func zeroRemedy(number string) string {
	value, err := strconv.ParseFloat(number, 64)
	switch {
	case err != nil:
		return ""
	case value > float64(window.MaxCount):
		return ": to limit nobody, write unlimited: true, and no limit"
	case value > 0:
		return ": write a longer time, such as 1/10s"
	}
	return ": to deny callers, write an override with limit: blocked"
}

// nearestUnit is the unit that a mistyped one is meant as, or "".
func nearestUnit(text string) string {
	for _, s := range spelling {
		if s.word == text {
			text = s.by
		}
	}
	units := []string{"second", "minute", "hour", "day", "week"}
	for _, unit := range units {
		if unit[:1] == text {
			return unit
		}
	}
	if strings.ContainsAny(text, "0123456789") {
		return ""
	}
	return strictyaml.Closest(text, units)
}

// spelled is a span that is meant by a text in other words, such as 1.5h, 90 sec or 30m1h, or "".
func spelled(text string) string {
	text = strings.ReplaceAll(strings.ToLower(text), " ", "")
	for _, s := range spelling {
		if before, ok := strings.CutSuffix(text, s.word); ok {
			text = before + s.by
			break
		}
	}
	for unit, hours := range map[string]float64{"d": 24, "w": 7 * 24} { // which time.ParseDuration has not
		if n, err := strconv.ParseFloat(strings.TrimSuffix(text, unit), 64); err == nil && strings.HasSuffix(text, unit) {
			text = strconv.FormatFloat(n*hours, 'f', -1, 64) + "h"
		}
	}
	span, err := time.ParseDuration(text)
	if err != nil || span < time.Millisecond || span > window.MaxLength || span%time.Millisecond != 0 {
		return ""
	}
	return spanText(span)
}

// spanRemedy says how to write a span.
func spanRemedy(text string) string {
	if span := spelled(text); span != "" {
		return ": write " + span
	}
	if n, err := strconv.ParseUint(text, 10, 31); err == nil && n > 0 {
		return fmt.Sprintf(": write %dms or %[1]ds", n)
	}
	if span, err := time.ParseDuration(text); err == nil && span < time.Millisecond {
		return ": the shortest is 1ms"
	}
	return ""
}

// overrideRemedy says how to write the limit of an override.
func overrideRemedy(text string) string {
	plain := strings.ToLower(strings.TrimSpace(text))
	switch plain {
	case "none", "inf", "infinite", "-1", "allow", "unlimited":
		return ": write unlimited"
	case "0", "deny", "denied", "block", "blocked":
		return ": write blocked"
	}
	if near := strictyaml.Closest(plain, []string{"unlimited", "blocked"}); near != "" {
		return ": write " + near
	}
	if number, ok := strings.CutSuffix(plain, "%"); ok && isDecimal(number) {
		part, _ := strconv.ParseFloat(number, 64)
		return ": write " + strconv.FormatFloat(part/100, 'f', -1, 64) + "x"
	}
	if hits := hitsOf(plain); hits > 0 {
		return fmt.Sprintf(": write %d/second, or %[1]dx for %[1]d times the rule's limit", hits)
	}
	return factorRemedy(plain)
}

// factorRemedy says how to write a factor.
func factorRemedy(text string) string {
	number := strings.Trim(strings.ToLower(text), "x* ")
	factor, err := strconv.ParseFloat(number, 64)
	switch {
	case err != nil || math.IsNaN(factor) || math.IsInf(factor, 0):
		return ""
	case factor == 0:
		return ": write blocked"
	case factor < 0:
		return ""
	}
	return ": write " + strconv.FormatFloat(factor, 'f', -1, 64) + "x"
}

// percentRemedy says how to write a percentage.
func percentRemedy(text string) string {
	number, hadSign := strings.CutSuffix(strings.ReplaceAll(text, " ", ""), "%")
	number = strings.ReplaceAll(number, ",", ".")
	switch part, err := strconv.ParseFloat(number, 64); {
	case err != nil || !isDecimal(number):
		return ""
	case !hadSign && part <= 1:
		return ": write " + percent(part).String()
	}
	return ": write " + number + "%"
}

// momentRemedy says how to write a time.
func momentRemedy(text string) string {
	for _, layout := range []string{
		time.DateOnly, time.DateTime, "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04",
		"2006-01-02 15:04:05Z07:00", "2006-01-02T15:04Z07:00",
	} {
		if at, err := time.Parse(layout, text); err == nil && !at.IsZero() {
			return ": write " + at.Format(time.RFC3339)
		}
	}
	return ""
}

// meant are words that readers know from elsewhere, and those that they stand for in a file.
var meant = map[string][]string{
	"wait": {"queue"}, "allow": {"open"}, "deny": {"reject", "closed"}, "block": {"reject", "deny"},
	"fail_open": {"open"}, "fail_closed": {"closed"}, "local": {"share"}, "ignore": {"skip"},
	"gcra": {"token_bucket"}, "none": {"hard"}, "exact": {"strict"}, "sync": {"strict"},
	"hard": {"strict"}, "denied": {"all"}, "both": {"all"}, "allowed": {"admitted"},
	"log": {"sliding_log"},
}

// wordRemedy says which of the words is probably meant.
func wordRemedy(text string, words []string) string {
	text = strings.ReplaceAll(strings.ToLower(text), "-", "_")
	nearest := slices.Concat(meant[text], []string{strictyaml.Closest(text, words)})
	for _, word := range words {
		if len(text) > 2 && strings.HasPrefix(word, text) {
			nearest = append(nearest, word)
		}
	}
	for _, word := range nearest {
		if slices.Contains(words, word) {
			return ": did you mean " + word + "?"
		}
	}
	return ""
}

// nameRemedy writes a name without the characters that names may not have.
func nameRemedy(name string) string {
	plain := strings.Join(strings.FieldsFunc(name, func(c rune) bool { return !isNameRune(c) }), "-")
	if plain == "" || len(plain) > 40 {
		return ""
	}
	return ": write " + plain
}

// bucketsRemedy is the nearest number of buckets that a span can be divided into.
func bucketsRemedy(shape window.Shape) string {
	millis := shape.Length.Milliseconds()
	if shape.Fixed || millis < 1 {
		return ""
	}
	most := int(min(millis, window.MaxBuckets))
	wanted := min(shape.Buckets, most)
	for off := range most {
		for _, n := range []int{wanted - off, wanted + off} {
			if n >= 1 && n <= most && millis%int64(n) == 0 {
				return fmt.Sprintf(": write %d", n)
			}
		}
	}
	return ""
}

// orList is the words of a sentence that has one of them.
func orList(words []string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}
