// Package envoyrules reads the configuration of envoyproxy/ratelimit as rules, so that its users
// can move by pointing at their file.
//
// A descriptor with a rate limit becomes a rule: a fixed window, for requests that have the file's
// domain as the attribute Domain, and the keys on the way to the descriptor, and no other
// attribute. docs/rules.md lists what differs from the original.
package envoyrules

import (
	"errors"
	"slices"

	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/rules/internal/strictyaml"
)

// Domain is the attribute that a file's domain is the value of.
const Domain = "domain"

// Import reads a file of envoyproxy/ratelimit: one domain and its descriptors. Every error is a
// *rules.Error, which lists all mistakes.
func Import(data []byte) (*rules.Set, error) {
	doc, mistake := strictyaml.Parse(data)
	if mistake != nil {
		return nil, refusal([]strictyaml.Mistake{*mistake})
	}
	set := read(doc)
	if mistakes := doc.Mistakes(); len(mistakes) > 0 {
		return nil, refusal(mistakes)
	}
	return set, nil
}

// Read reads rules in either format: that of rules.Parse, or a file with a domain as Import does.
func Read(data []byte) (*rules.Set, error) {
	doc, mistake := strictyaml.Parse(data)
	if mistake == nil && isDomain(doc.Fields()) {
		return Import(data)
	}
	return rules.Parse(data)
}

// isDomain reports whether these are the fields of a file of envoyproxy/ratelimit.
func isDomain(fields []string) bool {
	theirs := slices.Contains(fields, "domain") || slices.Contains(fields, "descriptors")
	return theirs && !slices.Contains(fields, "rules")
}

// read reads the document. The set is worth nothing if there are mistakes in it afterwards.
func read(doc *strictyaml.Document) *rules.Set {
	var f file
	doc.Decode(&f, format)
	f.check(doc)
	if len(doc.Mistakes()) > 0 {
		return nil
	}
	list, places, err := f.rules()
	if wrong, ok := errors.AsType[*mistake](err); ok {
		doc.Refuse(wrong.path, wrong.reason)
		return nil
	}
	if len(list) == 0 {
		doc.Refuse(nil, "there are no rate limits")
		return nil
	}
	set, err := rules.NewSet(list...)
	if refused, ok := errors.AsType[*rules.Error](err); ok {
		doc.Refuse(places[refused.Rule-1], refused.Reason)
		for _, e := range refused.More {
			doc.Refuse(places[e.Rule-1], e.Reason)
		}
	}
	return set
}

// refusal is the error that lists these mistakes.
func refusal(mistakes []strictyaml.Mistake) *rules.Error {
	all := make([]rules.Error, len(mistakes))
	for i, m := range mistakes {
		all[i] = rules.Error{Line: m.Line, Column: m.Column, Reason: m.Reason}
	}
	all[0].More = all[1:]
	return &all[0]
}
