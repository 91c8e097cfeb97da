package envoyrules

import (
	"cmp"
	"errors"
	"slices"

	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/rules/internal/strictyaml"
)

// reading is what has been read of some files.
type reading struct {
	files     []string // their names
	list      []rules.Rule
	places    []place // of the rules
	documents []*document
	refused   []rules.Error
	warnings  []Warning // of no document
}

// document is one document of envoyproxy/ratelimit's format.
type document struct {
	*strictyaml.Document
	file string
	root file
}

// String says where the document is.
func (d *document) String() string {
	if d.file == "" {
		return "an earlier document"
	}
	return d.file
}

// place is where a rule is written. Those of the own format are known by their file alone.
type place struct {
	doc  *document // nil for one of the own format
	path []any
	file string
}

// parseOurs reads a file of the own format.
func (r *reading) parseOurs(f File) {
	set, err := rules.Parse(f.Data)
	if refused, ok := errors.AsType[*rules.Error](err); ok {
		for _, one := range flat(refused) {
			one.File = f.Name
			r.refused = append(r.refused, one)
		}
		return
	}
	for _, rule := range set.Rules() {
		r.list, r.places = append(r.list, *rule), append(r.places, place{file: f.Name})
	}
}

// flat is an error and those that follow it, one by one.
func flat(e *rules.Error) []rules.Error {
	all := append([]rules.Error{*e}, e.More...)
	all[0].More = nil
	return all
}

// parseTheirs reads the documents of a file of envoyproxy/ratelimit.
func (r *reading) parseTheirs(f File) {
	docs, mistake := strictyaml.ParseAll(f.Data)
	if mistake != nil {
		r.refuse(f.Name, *mistake)
		return
	}
	for _, doc := range docs {
		d := &document{Document: doc, file: f.Name}
		doc.Decode(&d.root, format)
		d.root.check(d)
		r.documents = append(r.documents, d)
	}
}

func (r *reading) refuse(file string, m strictyaml.Mistake) {
	one := rules.Error{File: file, Line: m.Line, Column: m.Column, Reason: m.Reason}
	r.refused = append(r.refused, one)
}

// finish makes the set of all files, or the error of all mistakes in them.
func (r *reading) finish() (*rules.Set, []Warning, error) {
	if !r.wrong() {
		r.addDomains()
	}
	var set *rules.Set
	if !r.wrong() {
		set = r.newSet()
	}
	warnings := r.warnings
	for _, d := range r.documents {
		for _, m := range d.Mistakes() {
			r.refuse(d.file, m)
		}
		for _, m := range d.Warnings() {
			warnings = append(warnings, Warning{d.file, m.Line, m.Column, m.Reason})
		}
	}
	if len(r.refused) == 0 {
		return set, warnings, nil
	}
	slices.SortStableFunc(r.refused, func(a, b rules.Error) int {
		return cmp.Compare(slices.Index(r.files, a.File), slices.Index(r.files, b.File))
	})
	first := r.refused[0]
	first.More = r.refused[1:min(len(r.refused), strictyaml.MaxMistakes)]
	return nil, nil, &first
}

// wrong reports whether there are mistakes so far.
func (r *reading) wrong() bool {
	return len(r.refused) > 0 || slices.ContainsFunc(r.documents, func(d *document) bool {
		return len(d.Mistakes()) > 0
	})
}

// addDomains adds the rules of each domain, whose descriptors may stand in several documents.
func (r *reading) addDomains() {
	var names []string
	domains := make(map[string][]*document)
	for _, d := range r.documents {
		if domains[d.root.Domain] == nil {
			names = append(names, d.root.Domain)
		}
		domains[d.root.Domain] = append(domains[d.root.Domain], d)
	}
	b := &build{}
	for _, name := range names {
		if !b.domain(name, domains[name]) {
			return
		}
	}
	r.list, r.places = append(r.list, b.list...), append(r.places, b.places...)
}

// newSet makes the set, or refuses rules where they are written.
func (r *reading) newSet() *rules.Set {
	set, err := rules.NewSet(r.list...)
	refused, ok := errors.AsType[*rules.Error](err)
	if !ok {
		return set
	}
	for _, one := range flat(refused) {
		at := r.places[one.Rule-1]
		if at.doc != nil {
			at.doc.Refuse(at.path, one.Reason)
			continue
		}
		one.File = at.file
		r.refused = append(r.refused, one)
	}
	return nil
}
