package upstream

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"
)

// patient serves requests of any length, and cuts off clients that make no progress: each read of a
// body and each write of an answer may take this long. A server's own time-outs are for a whole
// request, and a stream may take longer.
func patient(patience time.Duration, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		if r.Body != nil && r.Body != http.NoBody {
			body := &patientBody{body: r.Body, rc: rc, patience: patience}
			_ = body.within(patience)
			defer body.leave()
			// A copy: the request is the server's.
			r = r.WithContext(context.WithValue(r.Context(), bodyKey{}, body))
			r.Body = body
		} else {
			// Remove the server's own deadline: on HTTP/1 it would end the request while it is
			// being answered.
			_ = rc.SetReadDeadline(time.Time{})
		}
		// Afterwards, the server reads the rest of the body and writes the rest of the answer,
		// which may be all of it.
		defer func() { _ = rc.SetWriteDeadline(time.Now().Add(2 * patience)) }()
		next.ServeHTTP(&patientWriter{w, rc, patience}, r)
	})
}

// patientBody is a request's body. The transport may go on reading it for a moment after the
// request has been answered, when the connection belongs to the next one.
type patientBody struct {
	body     io.ReadCloser
	patience time.Duration

	mu    sync.Mutex
	rc    *http.ResponseController // nil when the request has been answered
	ended bool
	err   error // of a failed read
}

// bodyKey is the context key of a request's body. The transport does not return the body's error:
// on HTTP/1 the context has ended by then.
type bodyKey struct{}

// bodyError returns the error of reading a request's body, nil if there was none.
func bodyError(r *http.Request) error {
	b, ok := r.Context().Value(bodyKey{}).(*patientBody)
	if !ok {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil && !b.ended && r.Context().Err() != nil {
		// The read that ended the context has not set the error yet. A client that has left gets no
		// answer, so this one was slow.
		return os.ErrDeadlineExceeded
	}
	return b.err
}

// within limits the next read, 0 for no limit. It ignores errors: a connection without deadlines
// has been hijacked.
func (b *patientBody) within(patience time.Duration) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rc == nil {
		return http.ErrBodyReadAfterClose
	}
	deadline := time.Time{}
	if b.ended = patience == 0; !b.ended {
		deadline = time.Now().Add(patience)
	}
	_ = b.rc.SetReadDeadline(deadline)
	return nil
}

func (b *patientBody) hasEnded() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ended
}

// leave limits the server's read of the rest, which it does if that is short.
func (b *patientBody) leave() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.ended {
		_ = b.rc.SetReadDeadline(time.Now().Add(b.patience))
	}
	b.rc = nil
}

// Read reads in time. After the end it returns io.EOF again, without a read: http.Transport tries
// to read beyond a body of known length, the server closes the body as soon as the answer begins,
// and http.Transport would abandon the service's answer for that error.
func (b *patientBody) Read(p []byte) (int, error) {
	if b.hasEnded() {
		return 0, io.EOF
	}
	if err := b.within(b.patience); err != nil {
		return 0, err
	}
	n, err := b.body.Read(p)
	switch {
	case errors.Is(err, io.EOF):
		_ = b.within(0) // from here on the server watches the connection for its end
	case err != nil:
		b.mu.Lock()
		defer b.mu.Unlock()
		b.err = err
	}
	return n, err
}

// Close closes the body.
func (b *patientBody) Close() error { return b.body.Close() }

// patientWriter limits the write of each piece of an answer. When the piece has been flushed, which
// httputil.ReverseProxy does each time, there is no deadline until the next one: HTTP/2 ends
// streams whose deadline passes even if there is nothing to write.
type patientWriter struct {
	http.ResponseWriter
	rc       *http.ResponseController
	patience time.Duration
}

// Write writes in time.
func (w *patientWriter) Write(p []byte) (int, error) {
	_ = w.rc.SetWriteDeadline(time.Now().Add(w.patience))
	return w.ResponseWriter.Write(p)
}

// FlushError sends what has been written, at least the header.
func (w *patientWriter) FlushError() error {
	_ = w.rc.SetWriteDeadline(time.Now().Add(w.patience))
	err := w.rc.Flush()
	_ = w.rc.SetWriteDeadline(time.Time{})
	return err
}

// Unwrap is for http.ResponseController.
func (w *patientWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
