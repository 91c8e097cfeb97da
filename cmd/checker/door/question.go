package door

import (
	"errors"
	"fmt"
	"io"

	"github.com/offpath-io/offpath/pkg/identity"
)

// maxAttributes is the most attributes of one request: as many as a rule can match and take for its
// key. Finding one is a linear search.
const maxAttributes = 128

// question is what a body asks, or one of a batch.
type question struct {
	attributes identity.Attributes
	rule, key  string
	cost       int64
	mode       mode
	settle     bool // the true cost comes later

	hasAttributes, hasRule, hasKey bool // which of them it holds
}

// mode is what to do with a question.
type mode string

const (
	modeCheck  mode = "check"  // decide, and charge what passes
	modePeek   mode = "peek"   // say what check would decide
	modeRecord mode = "record" // charge, whatever there is room for
	modeWait   mode = "wait"   // check, and wait where the rule lets callers wait
	// check, and say when it is the caller's turn where the rule lets callers wait
	modeReserve mode = "reserve"
)

// decode reads a body that is one question.
func decode(body []byte) (q question, err error) {
	err = readBody("body", body, func(r *reader) error {
		q, err = r.question("body")
		return err
	})
	return q, err
}

// question reads an object that is one.
func (r *reader) question(what string) (question, error) {
	q := question{cost: 1, mode: modeCheck}
	if err := r.object(what, func(name string) error { return r.field(&q, name) }); err != nil {
		return question{}, err
	}
	return q, q.check()
}

// ReadAttributes reads a JSON object of strings, as a body's attributes, and nothing else. It reads up to MaxBody bytes.
func ReadAttributes(r io.Reader) (attributes identity.Attributes, err error) {
	text, err := io.ReadAll(io.LimitReader(r, MaxBody+1))
	switch {
	case err != nil:
		return nil, err
	case len(text) > MaxBody:
		return nil, fmt.Errorf("longer than %d bytes", MaxBody)
	}
	err = readBody("text", text, func(r *reader) error {
		attributes, err = r.attributes()
		return err
	})
	return attributes, err
}

// check refuses a question that is none, or two, or of two minds.
func (q *question) check() error {
	switch {
	case q.hasAttributes && (q.hasRule || q.hasKey):
		return errors.New(`both "attributes" and "rule" or "key": want either`)
	case q.hasRule != q.hasKey:
		return errors.New(`"rule" and "key": want both`)
	case !q.hasAttributes && !q.hasRule:
		return errors.New(`neither "attributes" nor "rule" and "key"`)
	case q.settle && q.mode != modeCheck && q.mode != modeReserve:
		return errUnsettled
	}
	return nil
}

var errUnsettled = errors.New(`"settle": only what is checked and charged has a receipt`)

// questionFields read the values of a question's fields, by their names.
var questionFields = map[string]func(*reader, *question) error{
	"attributes": func(r *reader, q *question) (err error) {
		q.hasAttributes = true
		q.attributes, err = r.attributes()
		return err
	},
	"cost": func(r *reader, q *question) (err error) {
		q.cost, err = r.cost(1)
		return err
	},
	"rule": func(r *reader, q *question) (err error) {
		q.hasRule = true
		q.rule, err = r.string(`"rule"`)
		return err
	},
	"key": func(r *reader, q *question) (err error) {
		q.hasKey = true
		q.key, err = r.string(`"key"`)
		return err
	},
	"mode": func(r *reader, q *question) (err error) {
		q.mode, err = r.mode()
		return err
	},
	"settle": func(r *reader, q *question) (err error) {
		q.settle, err = r.bool(`"settle"`)
		return err
	},
}

// field reads the value of a field.
func (r *reader) field(q *question, name string) error {
	if read, ok := questionFields[name]; ok {
		return read(r, q)
	}
	return unknown(name)
}

func unknown(name string) error { return fmt.Errorf("unknown field %.40q", name) }

func (r *reader) mode() (mode, error) {
	text, err := r.string(`"mode"`)
	switch m := mode(text); {
	case err != nil:
		return "", err
	case m == modeCheck || m == modePeek || m == modeRecord || m == modeWait || m == modeReserve:
		return m, nil
	}
	return "", fmt.Errorf(`"mode": want "check", "wait", "reserve", "peek" or "record", not %.40q`, text)
}

func (r *reader) attributes() (identity.Attributes, error) {
	const few = 4
	attributes := make(identity.Attributes, 0, few)
	err := r.object(`"attributes"`, func(name string) error {
		if len(attributes) == maxAttributes {
			return fmt.Errorf(`"attributes": more than %d`, maxAttributes)
		}
		value, err := r.attribute(name)
		attributes = append(attributes, identity.Attribute{Name: name, Value: value})
		return err
	})
	return attributes, err
}

// attribute reads the value of one. That is what most of a body is, so what an error would say is not made beforehand.
func (r *reader) attribute(name string) (string, error) {
	token, err := r.next()
	if err != nil || token.Kind() != '"' {
		return "", orElse(err, fmt.Sprintf("attribute %.40q: want a string", name))
	}
	return token.String(), nil
}
