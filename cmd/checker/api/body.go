package api

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync"

	"github.com/offpath-io/offpath/cmd/internal/reply"
)

var bodies = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// withBody reads a request's body for serve, which may use it until it returns, or refuses it.
func withBody(
	serve func(*handler, context.Context, http.ResponseWriter, []byte),
) func(*handler, http.ResponseWriter, *http.Request) {
	return func(h *handler, w http.ResponseWriter, r *http.Request) {
		if h.checker == nil {
			w.Header().Set("Retry-After", "1")
			reply.Error(w, http.StatusServiceUnavailable, "there are no rules yet")
			return
		}
		body := bodies.Get().(*bytes.Buffer)
		defer func() {
			if body.Cap() <= MaxBody { // larger ones are rare
				bodies.Put(body)
			}
		}()
		body.Reset()
		_, err := body.ReadFrom(http.MaxBytesReader(w, r.Body, MaxBatchBody))
		if _, long := errors.AsType[*http.MaxBytesError](err); long {
			refuseLong(w, MaxBatchBody)
			return
		}
		if err != nil {
			reply.Error(w, http.StatusBadRequest, "body ends early")
			return
		}
		serve(h, r.Context(), w, body.Bytes())
	}
}

// refuse answers an invalid body, and reports whether it did. Only a batch may be longer than
// MaxBody.
func refuse(w http.ResponseWriter, body []byte, isBatch bool, err error) bool {
	switch {
	case !isBatch && len(body) > MaxBody:
		refuseLong(w, MaxBody)
	case err != nil:
		reply.Error(w, http.StatusBadRequest, err.Error())
	default:
		return false
	}
	return true
}

func refuseLong(w http.ResponseWriter, most int) {
	reply.Error(w, http.StatusRequestEntityTooLarge,
		"body is longer than "+strconv.Itoa(most)+" bytes")
}

// object is a JSON object of a body.
type object interface {
	// readField reads the value of a field.
	readField(r *reader, name string) error
	// validate checks the object as a whole.
	validate() error
}

// decode reads a body that is one object, or {"list": [object, …]}: a batch, which is not nil then,
// even beside an error. Fields that an object does not have are those of blank.
func decode[T any, P interface {
	*T
	object
}](body []byte, list, element string, blank T) (one T, batch []T, err error) {
	one = blank
	err = readBody("body", body, func(r *reader) error {
		mixed := false
		err := r.object("body", func(name string) error {
			if name != list {
				mixed = true
				return P(&one).readField(r, name)
			}
			batch = []T{}
			return r.list(strconv.Quote(list), MaxBatch, func(i int) error {
				batch = append(batch, blank)
				return readObject(r, element, P(&batch[i]))
			})
		})
		switch {
		case err != nil:
			return err
		case batch == nil:
			return P(&one).validate()
		case mixed:
			return errors.New(strconv.Quote(list) + " and something else: want it alone")
		}
		return nil
	})
	return one, batch, err
}

func readObject(r *reader, what string, o object) error {
	err := r.object(what, func(name string) error { return o.readField(r, name) })
	if err != nil {
		return err
	}
	return o.validate()
}
