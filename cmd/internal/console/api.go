package console

import (
	"compress/gzip"
	"context"
	"embed"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/offpath-io/offpath/cmd/internal/reply"
	"github.com/offpath-io/offpath/internal/blocks"
	"github.com/offpath-io/offpath/internal/natssource"
	"github.com/offpath-io/offpath/internal/uplot"
	"github.com/offpath-io/offpath/pkg/aggregate"
)

//go:embed web
var web embed.FS

const (
	// maxStreams bounds the pages that are kept up to date.
	maxStreams = 100
	// maxBody is the most bytes of a request's body.
	maxBody = 16 << 10
	// maxRulesBody is the same for one with rules, whose text may be half of it: JSON has to escape
	// line breaks.
	maxRulesBody = 2 * natssource.MaxSize
	// streamTimeout is how long a page that is behind may take to read.
	streamTimeout = 10 * time.Second
)

// policy lets the page load nothing but what is embedded, talk to nobody else, and be shown in
// nobody else's.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Handler serves the page at /, and what it needs. Paths of an admin port's are left to other.
func (c *Console) Handler(other http.Handler) http.Handler {
	files, err := fs.Sub(web, "web")
	if err != nil {
		panic(err) // unreachable: the directory is embedded
	}
	static := http.FileServerFS(files)
	mux := http.NewServeMux()
	handle := func(pattern string, h http.Handler) { mux.Handle(pattern, c.o.Hosts.guard(h)) }
	handle("GET /api/view", http.HandlerFunc(c.serveView))
	handle("GET /api/stream", c.serveStream(new(atomic.Int64)))
	handle("GET /api/rules", http.HandlerFunc(c.serveRules))
	handle("GET /api/key", http.HandlerFunc(c.serveKey))
	handle("GET /api/history", http.HandlerFunc(c.serveHistory))
	handle("GET /api/whatif", http.HandlerFunc(c.serveWhatIf))
	handle("POST /api/token", c.change(func(_ context.Context, who Who, _ *order) (any, error) { return who, nil }))
	handle("POST /api/block", c.change(c.blockFor))
	handle("POST /api/unblock", c.change(c.unblockFor))
	handle("POST /api/reset", c.change(c.resetFor))
	handle("POST /api/rules/diff", changeBy(c, maxRulesBody, c.diffRules))
	handle("POST /api/rules/apply", changeBy(c, maxRulesBody, c.applyRules))
	entries, err := fs.ReadDir(files, ".")
	if err != nil {
		panic(err) // unreachable, likewise
	}
	handle("GET /{$}", static)
	for _, e := range entries {
		handle("GET /"+e.Name(), static)
	}
	for _, name := range []string{uplot.Script, uplot.Style, uplot.License} {
		handle("GET /uplot/"+name, http.StripPrefix("/uplot/", http.FileServerFS(uplot.Files)))
	}
	mux.Handle("/", other)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		mux.ServeHTTP(w, r)
	})
}

func (c *Console) serveView(w http.ResponseWriter, _ *http.Request) {
	reply.JSON(w, http.StatusOK, c.View())
}

// serveStream sends the view every second, as server-sent events.
func (c *Console) serveStream(open *atomic.Int64) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if open.Add(1) > maxStreams {
			open.Add(-1)
			reply.Error(w, http.StatusServiceUnavailable, "too many pages are open")
			return
		}
		defer open.Add(-1)
		control := http.NewResponseController(w)
		_ = control.SetReadDeadline(time.Time{}) // nothing more is read; errors show when writing
		w.Header().Set("Content-Type", "text/event-stream")
		send, end := newSender(w, r)
		defer end()
		ticker := time.NewTicker(tick)
		defer ticker.Stop()
		for {
			data, err := c.viewJSON()
			if err != nil {
				return
			}
			_ = control.SetWriteDeadline(time.Now().Add(streamTimeout))
			if send(data) != nil || control.Flush() != nil {
				return
			}
			select {
			case <-r.Context().Done():
				return
			case <-c.stopping:
				return
			case <-ticker.C:
			}
		}
	}
}

// newSender returns what sends an event, and what ends the stream; compressed if the reader takes
// that: the same names come again and again, and a phone's network is slow.
func newSender(w http.ResponseWriter, r *http.Request) (send func(data []byte) error, end func()) {
	w.Header().Set("Vary", "Accept-Encoding")
	if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		return func(data []byte) error {
			_, err := fmt.Fprintf(w, "data: %s\n\n", data)
			return err
		}, func() {}
	}
	w.Header().Set("Content-Encoding", "gzip")
	packed, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil {
		panic(err) // unreachable: there is such a level
	}
	send = func(data []byte) error {
		if _, err := fmt.Fprintf(packed, "data: %s\n\n", data); err != nil {
			return err
		}
		return packed.Flush()
	}
	return send, func() { _ = packed.Close() } // an error means that the reader has gone
}

func (c *Console) serveRules(w http.ResponseWriter, _ *http.Request) {
	text, revision := c.rules.whole()
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Revision", fmt.Sprint(revision))
	_, _ = w.Write(text) // an error means that the client has gone
}

func (c *Console) serveKey(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	key, err := keyOf(query.Get("key"), query.Get("key_base64"))
	if err != nil {
		reply.Error(w, http.StatusBadRequest, err.Error())
		return
	}
	found, err := c.Look(r.Context(), query.Get("rule"), key)
	if err != nil {
		reply.Error(w, statusOf(err), err.Error())
		return
	}
	reply.JSON(w, http.StatusOK, found)
}

// serveHistory serves a span of the history, of a rule or the fleet.
func (c *Console) serveHistory(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	s, ok := c.picture.history.Read(query.Get("span"), query.Get("rule"), c.o.Worker.Now())
	if !ok {
		reply.Error(w, http.StatusBadRequest, "want a span of 15m, 1h or 24h")
		return
	}
	reply.JSON(w, http.StatusOK, s)
}

func (c *Console) serveWhatIf(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	limit, err := strconv.ParseInt(query.Get("limit"), 10, 64)
	if err != nil {
		reply.Error(w, http.StatusBadRequest, ErrLimit.Error())
		return
	}
	answer, err := c.WhatIf(query.Get("rule"), limit)
	if err != nil {
		reply.Error(w, statusOf(err), err.Error())
		return
	}
	reply.JSON(w, http.StatusOK, answer)
}

// errBase64 is for a key that is not as it says.
var errBase64 = errors.New("key_base64 is not base64")

func keyOf(text, base64Text string) (string, error) {
	if base64Text == "" {
		return text, nil
	}
	data, err := base64.StdEncoding.DecodeString(base64Text)
	if err != nil {
		return "", errBase64
	}
	return string(data), nil
}

func isConflict(err error) bool {
	_, ok := errors.AsType[*natssource.ConflictError](err)
	return ok
}

// statusOf is an error's.
func statusOf(err error) int {
	switch {
	case errors.Is(err, errBadRules), errors.Is(err, natssource.ErrTooLarge):
		return http.StatusUnprocessableEntity
	case errors.Is(err, ErrRule), errors.Is(err, blocks.ErrNoBlock):
		return http.StatusNotFound
	case errors.Is(err, aggregate.ErrKey), errors.Is(err, blocks.ErrBlock), errors.Is(err, ErrLimit),
		errors.Is(err, errBase64), errors.Is(err, errTwoKeys):
		return http.StatusBadRequest
	case errors.Is(err, blocks.ErrNoKey), errors.Is(err, errSigned):
		return http.StatusForbidden
	case errors.Is(err, blocks.ErrFull), errors.Is(err, errFileRules), isConflict(err):
		return http.StatusConflict
	case errors.Is(err, ErrUnwritten):
		return http.StatusInternalServerError
	}
	return http.StatusServiceUnavailable
}
