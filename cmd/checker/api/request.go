package api

import (
	"errors"
	"fmt"
	"io"

	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/identity"
)

// maxAttributes bounds the attributes of a request: a rule can match and take for its key as many.
// Finding one is a linear search.
const maxAttributes = 128

// request is a body, or an element of a batch.
type request struct {
	attributes identity.Attributes
	rule, key  string
	cost       int64
	mode       mode
	settle     bool // the caller wants a receipt

	hasAttributes, hasRule, hasKey bool
}

// blankRequest has the defaults.
var blankRequest = request{cost: 1, mode: modeCheck}

// mode is what to do with a request.
type mode string

const (
	modeCheck   mode = "check"
	modePeek    mode = "peek"
	modeRecord  mode = "record"
	modeWait    mode = "wait"
	modeReserve mode = "reserve"
)

// modes are the checker's modes.
var modes = map[mode]check.Mode{
	modeCheck: check.Charge, modePeek: check.Peek, modeRecord: check.Record,
	modeWait: check.Reserve, modeReserve: check.Reserve,
}

// decodeOne reads a body that is one request.
func decodeOne(body []byte) (request, error) {
	one := blankRequest
	err := readBody("body", body, func(r *reader) error { return readObject(r, "body", &one) })
	return one, err
}

// ReadAttributes reads a JSON object of strings, as in the field attributes, of at most MaxBody
// bytes.
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

// validate refuses incomplete and contradictory requests.
func (q *request) validate() error {
	switch {
	case q.hasAttributes && (q.hasRule || q.hasKey):
		return errors.New(`both "attributes" and "rule" or "key": want either`)
	case q.hasRule != q.hasKey:
		return errors.New(`"rule" and "key": want both`)
	case !q.hasAttributes && !q.hasRule:
		return errors.New(`neither "attributes" nor "rule" and "key"`)
	case q.settle && q.mode != modeCheck && q.mode != modeReserve:
		return errNoReceipt
	}
	return nil
}

var errNoReceipt = errors.New(`"settle": only what is checked and charged has a receipt`)

func (q *request) readField(r *reader, name string) (err error) {
	switch name {
	case "attributes":
		q.hasAttributes = true
		q.attributes, err = r.attributes()
	case "cost":
		q.cost, err = r.cost(1)
	case "rule":
		q.hasRule = true
		q.rule, err = r.string(`"rule"`)
	case "key":
		q.hasKey = true
		q.key, err = r.string(`"key"`)
	case "mode":
		q.mode, err = r.mode()
	case "settle":
		q.settle, err = r.bool(`"settle"`)
	default:
		err = unknown(name)
	}
	return err
}

func unknown(name string) error { return fmt.Errorf("unknown field %.40q", name) }

func (r *reader) mode() (mode, error) {
	text, err := r.string(`"mode"`)
	if err != nil {
		return "", err
	}
	if _, ok := modes[mode(text)]; !ok {
		return "", fmt.Errorf(
			`"mode": want "check", "wait", "reserve", "peek" or "record", not %.40q`, text)
	}
	return mode(text), nil
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

// attribute reads the value of an attribute. A body is mostly that, so the text of an error is made
// only when there is one.
func (r *reader) attribute(name string) (string, error) {
	token, err := r.next()
	if err != nil || token.Kind() != '"' {
		return "", orElse(err, fmt.Sprintf("attribute %.40q: want a string", name))
	}
	return token.String(), nil
}
