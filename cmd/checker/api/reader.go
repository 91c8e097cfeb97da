package api

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/offpath-io/offpath/pkg/window"
)

// reader reads a body token by token. encoding/json's Unmarshal accepts fields in any case, fields
// that come twice, and null for any value: mistakes of the caller that would go unnoticed. Package
// jsontext refuses duplicate fields and halves of surrogate pairs, and takes a tenth of the time
// that encoding/json takes for its tokens.
type reader struct {
	text    bytes.Buffer
	decoder jsontext.Decoder
}

var readers = sync.Pool{New: func() any { return new(reader) }}

// readBody calls read with a reader at the beginning of a body, and refuses a body that goes on
// after what it has read. Errors call the body what.
func readBody(what string, body []byte, read func(*reader) error) error {
	if !utf8.Valid(body) { // jsontext does not check the part after an error
		return errors.New(what + " is not UTF-8")
	}
	r := readers.Get().(*reader)
	defer readers.Put(r)
	r.text = *bytes.NewBuffer(body)
	r.decoder.Reset(&r.text)
	err := read(r)
	if err == nil {
		if _, end := r.decoder.ReadToken(); !errors.Is(end, io.EOF) {
			err = errors.New(what + " goes on after the object")
		}
	}
	r.text = bytes.Buffer{} // the pool must not keep the body
	r.decoder.Reset(&r.text)
	return err
}

// object reads an object, and calls read at the value of each field.
func (r *reader) object(what string, read func(name string) error) error {
	if _, err := r.want('{', what+": want an object"); err != nil {
		return err
	}
	for r.decoder.PeekKind() != '}' {
		token, err := r.next()
		if err != nil {
			return within(what, err)
		}
		if err := read(nameOf(token)); err != nil {
			return err
		}
	}
	_, err := r.next() // the brace
	return err
}

// names are frequent names. They need not be allocated.
var names = func() map[string]string {
	m := make(map[string]string)
	for _, name := range []string{
		"attributes", "cost", "rule", "key", "mode", "settle",
		"checks", "receipt", "settlements",
		"user", "api_key", "ip", "method", "path", "route", "api", "domain",
	} {
		m[name] = name
	}
	return m
}()

func nameOf(token jsontext.Token) string {
	if name, ok := names[token.String()]; ok { // the compiler does not allocate a map's key
		return name
	}
	return token.String()
}

// list reads an array of 1 to most values, and calls read at each.
func (r *reader) list(what string, most int, read func(i int) error) error {
	if _, err := r.want('[', what+": want an array"); err != nil {
		return err
	}
	i := 0
	for ; r.decoder.PeekKind() != ']'; i++ {
		if i == most {
			return fmt.Errorf("%s: more than %d", what, most)
		}
		if err := read(i); err != nil {
			return fmt.Errorf("%s[%d]: %w", what, i, err)
		}
	}
	if i == 0 {
		return fmt.Errorf("%s: want 1 to %d", what, most)
	}
	_, err := r.next() // the bracket
	return err
}

func (r *reader) string(what string) (string, error) {
	token, err := r.want('"', what+": want a string")
	if err != nil {
		return "", err
	}
	return token.String(), nil
}

func (r *reader) bool(what string) (bool, error) {
	token, err := r.next()
	if kind := token.Kind(); err != nil || kind != 't' && kind != 'f' {
		return false, orElse(err, what+": want true or false")
	}
	return token.Bool(), nil
}

// cost reads a cost of at least least.
func (r *reader) cost(least int64) (int64, error) {
	token, err := r.next()
	if err != nil {
		return 0, err
	}
	want := func(but string) error {
		return fmt.Errorf(`"cost": want a whole number from %d to %d%s`,
			least, window.MaxCount, but)
	}
	if token.Kind() != '0' {
		return 0, want("")
	}
	number := token.String()
	cost, err := strconv.ParseInt(number, 10, 64)
	if err != nil || cost < least || cost > window.MaxCount {
		return 0, want(fmt.Sprintf(", not %.40s", number))
	}
	return cost, nil
}

// want reads a token of one kind.
func (r *reader) want(kind jsontext.Kind, reason string) (jsontext.Token, error) {
	token, err := r.next()
	if err != nil || token.Kind() != kind {
		return jsontext.Token{}, orElse(err, reason)
	}
	return token, nil
}

// next returns the next token. Its error says where the body is not JSON.
func (r *reader) next() (jsontext.Token, error) {
	token, err := r.decoder.ReadToken()
	if err == nil {
		return token, nil
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return token, errors.New("not JSON: body ends early")
	}
	bad, ok := errors.AsType[*jsontext.SyntacticError](err)
	switch {
	case !ok: // unreachable: a buffer has no other errors
		return token, fmt.Errorf("not JSON: %w", err)
	case bad.Err == jsontext.ErrDuplicateName:
		return token, errTwice(bad.JSONPointer.LastToken())
	}
	return token, fmt.Errorf("not JSON: byte %d: %w", bad.ByteOffset, bad.Err)
}

// errTwice is a name that an object has twice.
type errTwice string

func (name errTwice) Error() string { return fmt.Sprintf("%.40q twice", string(name)) }

// within adds to an error which object has a name twice; other errors stay as they are.
func within(what string, err error) error {
	if name, ok := errors.AsType[errTwice](err); ok {
		return fmt.Errorf("%s: %w", what, name)
	}
	return err
}

func orElse(err error, reason string) error {
	if err != nil {
		return err
	}
	return errors.New(reason)
}
