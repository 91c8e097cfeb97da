package door

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync"
)

var bodies = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// keepBody is from how many bytes on a buffer is not kept for the next request.
const keepBody = MaxBody

// withBody reads a request's body for serve, which may use it until it returns, or refuses it.
func withBody(serve func(*handler, context.Context, http.ResponseWriter, []byte)) func(*handler, http.ResponseWriter, *http.Request) {
	return func(h *handler, w http.ResponseWriter, r *http.Request) {
		if h.checker == nil {
			w.Header().Set("Retry-After", "1")
			refuse(w, http.StatusServiceUnavailable, "there are no rules yet")
			return
		}
		body := bodies.Get().(*bytes.Buffer)
		defer func() {
			if body.Cap() <= keepBody {
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
			refuse(w, http.StatusBadRequest, "body ends early")
			return
		}
		serve(h, r.Context(), w, body.Bytes())
	}
}

// tooLong says whether a body is longer than it may be: a batch has been found shorter than its bound when it was read.
func tooLong(body []byte, batch bool) bool { return !batch && len(body) > MaxBody }

func refuseLong(w http.ResponseWriter, most int) {
	refuse(w, http.StatusRequestEntityTooLarge, "body is longer than "+strconv.Itoa(most)+" bytes")
}
