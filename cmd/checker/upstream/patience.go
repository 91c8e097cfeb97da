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
// body and each write of an answer has so long. A server's own timeouts are for the whole of a
// request, which a stream may exceed.
func patient(patience time.Duration, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		if r.Body != nil && r.Body != http.NoBody {
			body := &patientBody{body: r.Body, rc: rc, patience: patience}
			_ = body.within(patience)
			defer body.leave()
			r = r.WithContext(context.WithValue(r.Context(), bodyKey{}, body)) // a copy: the request is the server's
			r.Body = body
		} else {
			// The server's own deadline, if it has one: on HTTP/1 it would end the request while it
			// is being answered.
			_ = rc.SetReadDeadline(time.Time{})
		}
		// The server has still to write the end of the answer, or all of a short one, once it has
		// read what is left of the body.
		defer func() { _ = rc.SetWriteDeadline(time.Now().Add(2 * patience)) }()
		next.ServeHTTP(&patientWriter{w, rc, patience}, r)
	})
}

// patientBody is a request's body. The transport may go on reading it for a moment when the request
// has been answered, and the connection belongs to the next one.
type patientBody struct {
	body     io.ReadCloser
	patience time.Duration

	mu    sync.Mutex
	rc    *http.ResponseController // nil when the request has been answered
	ended bool
	err   error // why it broke off
}

// bodyKey is where a request's context has its body. An error of it is not what the transport to
// the service returns: on HTTP/1 the context has ended by then.
type bodyKey struct{}

// bodyError says why a request's body broke off, nil if it has not.
func bodyError(r *http.Request) error {
	b, ok := r.Context().Value(bodyKey{}).(*patientBody)
	if !ok {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil && !b.ended && r.Context().Err() != nil {
		// The read that has ended the context is about to say so. A client that has left gets no
		// answer, so this one was slow.
		return os.ErrDeadlineExceeded
	}
	return b.err
}

// within gives the next read its time, 0 for no bound. A connection that has no deadlines has been
// taken over, and is no longer ours.
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

// leave gives the server its time to read what is left, as it does if that is little.
func (b *patientBody) leave() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.ended {
		_ = b.rc.SetReadDeadline(time.Now().Add(b.patience))
	}
	b.rc = nil
}

// Read reads within the time. Once the body has ended it only says so again: http.Transport looks
// for more after a body of known length, while the server closes the body as soon as the answer
// begins, and would give up the service's answer for that error.
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

// patientWriter gives each piece of an answer its time. When the piece is flushed, as
// httputil.ReverseProxy does with each, there is no deadline until the next: HTTP/2 ends streams
// whose deadline passes even if there is nothing to write.
type patientWriter struct {
	http.ResponseWriter
	rc       *http.ResponseController
	patience time.Duration
}

// Write writes within the time.
func (w *patientWriter) Write(p []byte) (int, error) {
	_ = w.rc.SetWriteDeadline(time.Now().Add(w.patience))
	return w.ResponseWriter.Write(p)
}

// FlushError sends what there is: the header, if nothing else.
func (w *patientWriter) FlushError() error {
	_ = w.rc.SetWriteDeadline(time.Now().Add(w.patience))
	err := w.rc.Flush()
	_ = w.rc.SetWriteDeadline(time.Time{})
	return err
}

// Unwrap is for http.ResponseController.
func (w *patientWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
