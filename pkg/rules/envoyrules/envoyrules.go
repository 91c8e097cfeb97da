// Package envoyrules reads the configuration of envoyproxy/ratelimit as rules, so that its users can move by
// pointing at their file.
//
// A descriptor with a rate limit becomes a rule: a fixed window, for requests that have the file's domain as the
// attribute Domain, and the keys on the way to the descriptor, and no other attribute. What differs from the original
// is listed in docs/rules.md.
package envoyrules

import (
	"errors"
	"fmt"
	"io"
	"os"

	"go.yaml.in/yaml/v3"

	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/rules/internal/node"
)

// Domain is the attribute that a file's domain is the value of.
const Domain = "domain"

// Import reads a file of envoyproxy/ratelimit: one domain and its descriptors. Every error is a *rules.Error, with the place.
func Import(data []byte) (*rules.Set, error) {
	root, err := node.Document(data)
	if err != nil {
		return nil, refused(err)
	}
	return imported(root)
}

// Read reads rules in either format: that of rules.Parse, or a file with a domain as Import does.
func Read(data []byte) (*rules.Set, error) {
	root, err := node.Document(data)
	if err == nil && isDomain(root) {
		return imported(root)
	}
	return rules.Parse(data)
}

// Load reads the file at path in either format. Besides *rules.Error, it returns what reading the file did.
func Load(path string) (*rules.Set, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("load rules: %w", err)
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, rules.MaxSize+1)) // the one byte more is refused
	if err != nil {
		return nil, fmt.Errorf("load rules: %w", err)
	}
	set, err := Read(data)
	if refusal, ok := errors.AsType[*rules.Error](err); ok {
		refusal.File = path
	}
	return set, err
}

// isDomain reports whether this is a file of envoyproxy/ratelimit.
func isDomain(root *yaml.Node) bool {
	domain := false
	for i := 0; root.Kind == yaml.MappingNode && i < len(root.Content); i += 2 {
		switch root.Content[i].Value {
		case "rules":
			return false
		case "domain", "descriptors":
			domain = true
		}
	}
	return domain
}

func imported(root *yaml.Node) (*rules.Set, error) {
	file, err := readFile(root)
	if err != nil {
		return nil, refused(err)
	}
	list, places, err := file.rules()
	if err != nil {
		return nil, refused(err)
	}
	if len(list) == 0 {
		return nil, refused(node.Errorf(root, "there are no rate limits"))
	}
	set, err := rules.NewSet(list...)
	if refusal, ok := errors.AsType[*rules.Error](err); ok && refusal.Rule > 0 {
		at := places[refusal.Rule-1]
		refusal.Line, refusal.Column = at.Line, at.Column
	}
	return set, err
}

// refused is the error of package node as that of rules.
func refused(err error) error {
	if at, ok := errors.AsType[*node.Error](err); ok {
		return &rules.Error{Line: at.Line, Column: at.Column, Reason: at.Reason}
	}
	return err
}
