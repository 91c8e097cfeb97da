package rules

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/offpath-io/offpath/pkg/rules/internal/strictyaml"
	"github.com/offpath-io/offpath/pkg/window"
)

// schema is a JSON Schema, or a part of one.
type schema map[string]any

// described is a type of a file's value that has a schema of its own.
type described interface{ schema() schema }

// Schema returns a JSON Schema (draft 7) of the files that Parse reads, for editors. It is made of
// the type that Parse reads a file into. It accepts every such file, and refuses mistakes that a
// schema can express: not those about other rules, about sums, and about YAML itself. The slice is
// the caller's.
func Schema() []byte { return slices.Clone(schemaText()) }

var schemaText = sync.OnceValue(func() []byte {
	whole := schemaOf(reflect.TypeFor[file](), "")
	whole["$schema"] = "http://json-schema.org/draft-07/schema#"
	whole["title"] = "Rules of offpath"
	whole["required"] = []string{"rules"}
	text, err := json.MarshalIndent(whole, "", "  ")
	if err != nil {
		panic(err) // unreachable: it has texts, numbers, lists and maps alone
	}
	return append(text, '\n')
})

// schemaOf is the schema of a type; path is the names of fields that lead to it, with points
// between.
func schemaOf(t reflect.Type, path string) schema {
	s := shapeOf(t, path)
	if text := abouts[path]; text != "" {
		s["description"] = text
	}
	for name, value := range constraints[path] {
		s[name] = value
	}
	return s
}

func shapeOf(t reflect.Type, path string) schema {
	if t.Kind() == reflect.Pointer {
		return shapeOf(t.Elem(), path)
	}
	switch value := reflect.Zero(t).Interface().(type) {
	case described:
		return value.schema()
	case matched:
		return mappingSchema(schema{"type": "string"})
	case listed:
		return mappingSchema(schema{
			"type": "array", "minItems": 1, "items": schema{"type": "string"},
		})
	case strictyaml.Mapping[percent]:
		return mappingSchema(percent(0).schema())
	}
	switch t.Kind() {
	case reflect.Bool:
		return schema{"type": "boolean"}
	case reflect.String:
		return schema{"type": "string", "minLength": 1}
	case reflect.Slice:
		return schema{"type": "array", "items": schemaOf(t.Elem(), path+"[]")}
	}
	return structSchema(t, path)
}

// mappingSchema is the schema of a mapping with these values.
func mappingSchema(value schema) schema {
	return schema{"type": "object", "additionalProperties": value}
}

func structSchema(t reflect.Type, path string) schema {
	properties := make(schema)
	for field := range t.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("yaml"), ",")
		properties[name] = schemaOf(field.Type, strings.TrimPrefix(path+"."+name, "."))
	}
	return schema{"type": "object", "additionalProperties": false, "properties": properties}
}

func (w word[T]) schema() schema { return schema{"enum": wordsOf[T]()} }

func (whole) schema() schema {
	return schema{"type": "integer", "minimum": 1, "maximum": window.MaxCount}
}

func pattern(texts ...string) schema {
	return schema{"type": "string", "pattern": "^(" + strings.Join(texts, "|") + ")$"}
}

const (
	decimals = `[0-9]+(\.[0-9]+)?`
	units    = `second|minute|hour|day|week|[smhdw]`
)

func (rate) schema() schema { return pattern(ratePattern) }

func (overrideLimit) schema() schema {
	return pattern(ratePattern, decimals+"x", Unlimited.String(), Blocked.String())
}

func (span) schema() schema { return pattern(spanPattern) }

func (percent) schema() schema { return pattern(decimals + "%") }

func (moment) schema() schema {
	const day, clock = `[0-9]{4}-[0-9]{2}-[0-9]{2}`, `[0-9]{2}:[0-9]{2}:[0-9]{2}([.,][0-9]+)?`
	return pattern(day + `T` + clock + `(Z|[+-][0-9]{2}:[0-9]{2})`)
}

var (
	ratePattern = `0*[1-9][0-9]*/(` + units + `|` + spanPattern + `)`
	spanPattern = makeSpanPattern()
)

// makeSpanPattern is a pattern of spans: one unit, and then any smaller ones.
func makeSpanPattern() string {
	names := []string{"w", "d", "h", "m", "s", "ms"}
	var all []string
	for i, name := range names {
		text := "[0-9]+" + name
		for _, smaller := range names[i+1:] {
			text += "([0-9]+" + smaller + ")?"
		}
		all = append(all, text)
	}
	return strings.Join(all, "|")
}

// nameSchema is what rules and attributes may be called: see checkName.
var nameSchema = schema{"pattern": `^\S+$`, "maxLength": maxName}

// constraints are what the type of a field does not say of it, by the path to the field.
var constraints = map[string]schema{
	"rules":                   {"minItems": 1},
	"rules[]":                 ruleConstraints(),
	"rules[].name":            nameSchema,
	"rules[].match":           {"propertyNames": nameSchema, "maxProperties": maxAttributes},
	"rules[].exclude":         {"propertyNames": nameSchema},
	"rules[].allow":           {"propertyNames": nameSchema},
	"rules[].deny":            {"propertyNames": nameSchema},
	"rules[].key":             {"uniqueItems": true, "maxItems": maxAttributes},
	"rules[].key[]":           nameSchema,
	"rules[].cost":            nameSchema,
	"rules[].buckets":         {"maximum": window.MaxBuckets},
	"rules[].max_depth":       {"maximum": maxDepth},
	"rules[].status":          {"enum": []int{429, 503}},
	"rules[].replaces":        {"uniqueItems": true},
	"rules[].soft":            {"required": []string{"exceed"}},
	"rules[].elastic":         {"required": []string{"up_to", "while"}},
	"rules[].elastic.while":   {"required": []string{"rule", "below"}},
	"rules[].overrides[]":     {"required": []string{"match", "limit"}},
	"rules[].priority":        {"required": []string{"by", "shares"}},
	"rules[].priority.by":     nameSchema,
	"rules[].priority.shares": {"required": []string{DefaultClass}, "maxProperties": maxAttributes},
	"rules[].overrides[].match": {
		"propertyNames": nameSchema, "minProperties": 1, "maxProperties": maxAttributes,
	},
	"rules[].overrides[].buckets": {"maximum": window.MaxBuckets},
}

// ruleConstraints are which fields of a rule need which others.
func ruleConstraints() schema {
	has := func(field string, words ...string) schema {
		return schema{"required": []string{field}, "properties": schema{field: schema{"enum": words}}}
	}
	given := func(field string) schema { return schema{"required": []string{field}} }
	is := func(condition, then schema) schema { return schema{"if": condition, "then": then} }
	unless := func(field string) schema { return schema{"not": given(field)} }
	unlimited := schema{
		"required": []string{"unlimited"}, "properties": schema{"unlimited": schema{"const": true}},
	}
	queues := has("on_limit", queue.String())
	drains := has("algorithm", TokenBucket.String(), LeakyBucket.String())
	strict, leaky := has("enforcement", Strict.String()), has("algorithm", LeakyBucket.String())
	throttle := func(is ThrottleKind) schema {
		return schema{"properties": schema{"throttle": schema{"enum": []string{is.String()}}}}
	}
	return schema{
		"required": []string{"name"},
		"allOf": []schema{
			{"if": unlimited, "else": schema{"required": []string{"key", "limit"}}},
			is(given("burst"), drains),
			is(given("max_wait"), queues),
			is(given("max_depth"), queues),
			is(queues, given("max_wait")),
			is(leaky, unless("max_depth")),
			is(leaky, schema{"properties": schema{"count": schema{"enum": []string{Admitted.String()}}}}),
			is(has("algorithm", FixedWindow.String()),
				schema{"properties": schema{"buckets": schema{"const": 1}}}),
			is(given("soft"), throttle(Soft)),
			is(given("soft"), unless("elastic")),
			is(given("elastic"), throttle(Elastic)),
			is(has("throttle", Soft.String()), given("soft")),
			is(has("throttle", Elastic.String()), given("elastic")),
			is(strict, schema{"properties": schema{
				"on_outage": schema{"enum": []string{Closed.String()}},
				"count":     schema{"enum": []string{Admitted.String()}},
				"algorithm": schema{"enum": []string{SlidingWindow.String(), FixedWindow.String()}},
			}}),
		},
	}
}

// abouts say what fields are, by the path to them.
var abouts = map[string]string{
	"rules":                       "A request passes if all rules that match it admit it.",
	"rules[].name":                "Tells rules apart: in answers, metrics, the store and the ledger. Unique.",
	"rules[].match":               "What a request must have, by attribute: a value, a prefix such as /v1/*, or * for any value.",
	"rules[].exclude":             "What a request must not have, by attribute: values and prefixes.",
	"rules[].exact":               "Whether the request may have no attributes other than those of match and key.",
	"rules[].ordered":             "Whether the request's attributes have to come in the order of match. Needs exact.",
	"rules[].key":                 "The attributes that say who is limited. [] is one counter for all requests.",
	"rules[].on_missing":          "What to do if a request lacks an attribute of the key. Default: skip (the rule).",
	"rules[].limit":               "How many hits in which time: 15/second, 3000/10m. At most 366 days.",
	"rules[].buckets":             "How many counters the time of the limit is divided into. Default: 1 for a sliding window.",
	"rules[].algorithm":           "How hits are counted. Default: sliding_window.",
	"rules[].burst":               "How many hits a token or leaky bucket holds. Default: as many as limit.",
	"rules[].unlimited":           "A rule that matches and limits nobody. It has no limit.",
	"rules[].enforcement":         "How strictly the limit holds. Default: async, which may exceed it a little.",
	"rules[].on_outage":           "What to do without aggregators. Default: share (each checker keeps to its share).",
	"rules[].throttle":            "What may pass above the limit. Default: hard (nothing).",
	"rules[].soft":                "A fixed margin above the limit.",
	"rules[].soft.exceed":         "The margin as a part of the limit: more than 0%, at most 1000%.",
	"rules[].elastic":             "More than the limit, while there is room elsewhere.",
	"rules[].elastic.up_to":       "How much of the limit: more than 100%, at most 10000%.",
	"rules[].elastic.while":       "Which other rule says whether there is room.",
	"rules[].elastic.while.rule":  "The name of the other rule.",
	"rules[].elastic.while.below": "The part of that rule's limit under which there is room.",
	"rules[].on_limit":            "Deny, or let callers wait. Default: reject.",
	"rules[].max_wait":            "The longest that a caller waits, with on_limit: queue. At most 1h.",
	"rules[].max_depth":           "How many callers of a key wait at one checker at a time, with on_limit: queue. Default: 100.",
	"rules[].status":              "The HTTP status of a denial. Default: 429.",
	"rules[].shadow":              "Decide and count, and never deny.",
	"rules[].overrides":           "Different limits for some callers. The first one that matches counts.",
	"rules[].overrides[].match":   "Whom the override is for, by attribute.",
	"rules[].overrides[].limit":   "A limit such as 200/second, a factor such as 10x, unlimited or blocked.",
	"rules[].overrides[].buckets": "As of the rule, for a limit of its own.",
	"rules[].overrides[].burst":   "As of the rule, for a limit of its own.",
	"rules[].overrides[].until":   "When the override ends, as 2026-12-01T00:00:00Z.",
	"rules[].allow":               "Callers that this rule does not limit, by attribute.",
	"rules[].deny":                "Callers that this rule always denies, by attribute.",
	"rules[].cost":                "The attribute whose value is the request's cost. Default: the caller's cost.",
	"rules[].count":               "Which hits count. Default: admitted.",
	"rules[].priority":            "Classes of traffic with different shares of the limit.",
	"rules[].priority.by":         "The attribute whose value is the class.",
	"rules[].priority.shares":     "The share of each class. default is for all others.",
	"rules[].replaces":            "Names of rules that do not apply to a request that this rule applies to.",
}
