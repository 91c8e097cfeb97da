package door

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"unicode/utf8"

	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/window"
)

// maxAttributes is the most attributes of one request: as many as a rule can match and take for its
// key. Finding one is a linear search.
const maxAttributes = 128

// question is what a body asks.
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
)

// decode reads a body token by token, since json.Unmarshal takes fields in any case, twice, and null
// for anything: each of them a caller's mistake that would go unnoticed.
func decode(body []byte) (question, error) {
	if !utf8.Valid(body) {
		return question{}, errors.New("body is not UTF-8")
	}
	d := reader{json.NewDecoder(bytes.NewReader(body))}
	d.UseNumber()
	q := question{cost: 1, mode: modeCheck}
	if err := d.object("body", func(name string) error { return d.field(&q, name) }); err != nil {
		return question{}, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return question{}, errors.New("body goes on after the object")
	}
	return q, q.check()
}

// ReadAttributes reads a JSON object of strings, as a body's attributes, and nothing else. It reads up to MaxBody bytes.
func ReadAttributes(r io.Reader) (identity.Attributes, error) {
	text, err := io.ReadAll(io.LimitReader(r, MaxBody+1))
	switch {
	case err != nil:
		return nil, err
	case len(text) > MaxBody:
		return nil, fmt.Errorf("longer than %d bytes", MaxBody)
	case !utf8.Valid(text):
		return nil, errors.New("not UTF-8")
	}
	d := reader{json.NewDecoder(bytes.NewReader(text))}
	attributes, err := d.attributes()
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("goes on after the object")
	}
	return attributes, nil
}

// check refuses a question that is none, or two.
func (q *question) check() error {
	switch {
	case q.hasAttributes && (q.hasRule || q.hasKey):
		return errors.New(`both "attributes" and "rule" or "key": want either`)
	case q.hasRule != q.hasKey:
		return errors.New(`"rule" and "key": want both`)
	case !q.hasAttributes && !q.hasRule:
		return errors.New(`neither "attributes" nor "rule" and "key"`)
	}
	return nil
}

type reader struct{ *json.Decoder }

func (d reader) field(q *question, name string) (err error) {
	switch name {
	case "attributes":
		q.hasAttributes = true
		q.attributes, err = d.attributes()
	case "cost":
		q.cost, err = d.cost()
	case "rule":
		q.hasRule = true
		q.rule, err = d.text(`"rule"`)
	case "key":
		q.hasKey = true
		q.key, err = d.text(`"key"`)
	case "mode":
		q.mode, err = d.mode()
	case "settle":
		q.settle, err = d.truth(`"settle"`)
	default:
		err = fmt.Errorf("unknown field %.40q", name)
	}
	return err
}

func (d reader) mode() (mode, error) {
	text, err := d.text(`"mode"`)
	switch m := mode(text); {
	case err != nil:
		return "", err
	case m == modeCheck || m == modePeek || m == modeRecord || m == modeWait:
		return m, nil
	}
	return "", fmt.Errorf(`"mode": want "check", "wait", "peek" or "record", not %.40q`, text)
}

// object reads an object, and has read called at the value of each field. It refuses a field that
// comes twice.
func (d reader) object(what string, read func(name string) error) error {
	if token, err := d.next(); err != nil || token != json.Delim('{') {
		return orElse(err, what+": want an object")
	}
	seen := make(map[string]bool)
	for d.More() {
		token, err := d.next()
		name, ok := token.(string)
		if err != nil || !ok {
			return orElse(err, what+": want a field's name in quotes")
		}
		if seen[name] {
			return fmt.Errorf("%s: %.40q twice", what, name)
		}
		seen[name] = true
		if err := read(name); err != nil {
			return err
		}
	}
	_, err := d.next() // the brace
	return err
}

func (d reader) attributes() (identity.Attributes, error) {
	var attributes identity.Attributes
	err := d.object(`"attributes"`, func(name string) error {
		if len(attributes) == maxAttributes {
			return fmt.Errorf(`"attributes": more than %d`, maxAttributes)
		}
		value, err := d.text(fmt.Sprintf("attribute %.40q", name))
		attributes = append(attributes, identity.Attribute{Name: name, Value: value})
		return err
	})
	return attributes, err
}

func (d reader) text(what string) (string, error) {
	token, err := d.next()
	text, ok := token.(string)
	if err != nil || !ok {
		return "", orElse(err, what+": want a string")
	}
	return text, nil
}

func (d reader) cost() (int64, error) { return d.costFrom(1) }

// costFrom reads a cost of so much at least.
func (d reader) costFrom(least int64) (int64, error) {
	const want = `"cost": want a whole number from %d to %d`
	token, err := d.next()
	number, ok := token.(json.Number)
	if err != nil || !ok {
		return 0, orElse(err, fmt.Sprintf(want, least, window.MaxCount))
	}
	cost, err := strconv.ParseInt(number.String(), 10, 64)
	if err != nil || cost < least || cost > window.MaxCount {
		return 0, fmt.Errorf(want+", not %.40s", least, window.MaxCount, number)
	}
	return cost, nil
}

// next returns the next token. Its error says where the body is no JSON.
func (d reader) next() (json.Token, error) {
	token, err := d.Token()
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return nil, errors.New("not JSON: body ends early")
	case err != nil:
		return nil, fmt.Errorf("not JSON: byte %d: %w", d.InputOffset(), err)
	}
	return token, nil
}

func orElse(err error, reason string) error {
	if err != nil {
		return err
	}
	return errors.New(reason)
}
