// Package envoyrules reads the configuration of envoyproxy/ratelimit as rules, so that its users
// can move by pointing at their files.
//
// A descriptor with a rate limit becomes a rule: a fixed window, for requests that have the file's
// domain as the attribute Domain, then the keys on the way to the descriptor in their order, and no
// other attribute. A key that comes again is told apart by [Attribute]. docs/rules.md lists what
// differs from the original.
package envoyrules

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"

	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/rules/internal/strictyaml"
)

// Domain is the attribute that a file's domain is the value of.
const Domain = "domain"

// Attribute is the name of the nth attribute of a request with this key, from 1: the key, key#2,
// key#3 and so on. The domain is an attribute, too. It does not allocate for the first one.
func Attribute(key string, nth int) string {
	if nth < 2 {
		return key
	}
	return key + "#" + strconv.Itoa(nth)
}

// Origin is the Rule.Origin of a rule of these files: what there is no field of rules for.
type Origin struct {
	// LimitName is the name of the limit, which its answers show; "" if it has none.
	LimitName string
	// Quota is quota_mode: the limit does not deny a request while another one with it has room.
	Quota bool
}

// Suffixes are how the names of the files end that are read of a directory of rules.
var Suffixes = []string{".yaml", ".yml"}

// File is a text with rules.
type File struct {
	// Name is in front of its mistakes and warnings; "" for none.
	Name string
	// Data is in offpath's own format, or in that of envoyproxy/ratelimit. There it may have
	// several documents, each with a domain.
	Data []byte
}

// Warning is something about a file that it does not mean here, or that its author may not expect.
type Warning struct {
	File         string
	Line, Column int
	Reason       string
}

// String is "file:line:column: reason", as far as these are known.
func (w Warning) String() string {
	if w.File == "" {
		return fmt.Sprintf("line %d, column %d: %s", w.Line, w.Column, w.Reason)
	}
	return fmt.Sprintf("%s:%d:%d: %s", w.File, w.Line, w.Column, w.Reason)
}

// Import reads a text of envoyproxy/ratelimit: a domain and its descriptors, or several in a
// document each. Every error is a *rules.Error, which lists all mistakes.
func Import(data []byte) (*rules.Set, error) {
	r := new(reading)
	r.parseTheirs(File{Data: data})
	set, _, err := r.finish()
	return set, err
}

// Read reads rules in either format, as ReadFiles does of one file, and leaves out its warnings.
func Read(data []byte) (*rules.Set, error) {
	set, _, err := ReadFiles(File{Data: data})
	return set, err
}

// ReadFiles reads the rules of all files together, each in either format: that of rules.Parse, or
// that of Import. Domains of several documents are merged. A rule of the own format refers to other
// rules of its file alone. A file beside others that is all commented out is left out with a
// warning; one with nothing in it is a mistake, since its writer may have been interrupted. Every
// error is a *rules.Error, which lists all mistakes of all files.
func ReadFiles(files ...File) (*rules.Set, []Warning, error) {
	r := new(reading)
	var commentedOut []File
	isTheirs := func(doc *strictyaml.Document) bool { return isDomain(doc.Fields()) }
	for _, f := range files {
		r.files = append(r.files, f.Name)
		docs, mistake := strictyaml.ParseAll(f.Data)
		switch {
		case mistake != nil && mistake.IsEmpty() && bytes.ContainsRune(f.Data, '#'):
			commentedOut = append(commentedOut, f)
		case mistake == nil && slices.ContainsFunc(docs, isTheirs):
			r.parseTheirs(f)
		default:
			r.parseOurs(f)
		}
	}
	for _, f := range commentedOut {
		if len(commentedOut) == len(files) { // then there are no rules
			r.parseOurs(f)
			continue
		}
		r.warnings = append(r.warnings, Warning{f.Name, 1, 1, "all of it is commented out: it is left out"})
	}
	return r.finish()
}

// isDomain reports whether these are the fields of a file of envoyproxy/ratelimit.
func isDomain(fields []string) bool {
	theirs := slices.Contains(fields, "domain") || slices.Contains(fields, "descriptors")
	return theirs && !slices.Contains(fields, "rules")
}
