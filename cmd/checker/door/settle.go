package door

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"unicode/utf8"

	"github.com/offpath-io/offpath/pkg/check"
)

// SettlePath is where the true cost of a hit is settled.
const SettlePath = "/v1/settle"

// settle takes a true cost in.
func (h *handler) settle(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		refuse(w, http.StatusMethodNotAllowed, "method "+strconv.Quote(r.Method)+": want POST")
		return
	}
	body, ok := read(w, r)
	if !ok {
		return
	}
	b, err := decodeBill(body)
	if err == nil {
		err = h.checker.Settle(b.token, b.cost)
	}
	status := http.StatusBadRequest
	switch {
	case err == nil:
		w.WriteHeader(http.StatusNoContent)
		return
	case errors.Is(err, check.ErrSettled):
		status = http.StatusConflict
	case errors.Is(err, check.ErrTokenAge):
		status = http.StatusGone
	case errors.Is(err, check.ErrSettling):
		status = http.StatusServiceUnavailable
		w.Header().Set("Retry-After", "1")
	}
	refuse(w, status, err.Error())
}

// bill is what a body settles.
type bill struct {
	token string
	cost  int64

	hasToken, hasCost bool
}

func decodeBill(body []byte) (bill, error) {
	if !utf8.Valid(body) {
		return bill{}, errors.New("body is not UTF-8")
	}
	d := reader{json.NewDecoder(bytes.NewReader(body))}
	d.UseNumber()
	var b bill
	err := d.object("body", func(name string) (err error) {
		switch name {
		case "token":
			b.hasToken = true
			b.token, err = d.text(`"token"`)
		case "cost":
			b.hasCost = true
			b.cost, err = d.costFrom(0)
		default:
			err = fmt.Errorf("unknown field %.40q", name)
		}
		return err
	})
	if err != nil {
		return bill{}, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return bill{}, errors.New("body goes on after the object")
	}
	if !b.hasToken || !b.hasCost {
		return bill{}, errors.New(`"token" and "cost": want both`)
	}
	return b, nil
}

func (d reader) truth(what string) (bool, error) {
	token, err := d.next()
	truth, ok := token.(bool)
	if err != nil || !ok {
		return false, orElse(err, what+": want true or false")
	}
	return truth, nil
}

// read reads a request's body, or refuses it.
func read(w http.ResponseWriter, r *http.Request) (body []byte, ok bool) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBody))
	if _, tooLong := errors.AsType[*http.MaxBytesError](err); tooLong {
		refuse(w, http.StatusRequestEntityTooLarge, "body is longer than "+strconv.Itoa(MaxBody)+" bytes")
		return nil, false
	}
	if err != nil {
		refuse(w, http.StatusBadRequest, "body ends early")
		return nil, false
	}
	return body, true
}
