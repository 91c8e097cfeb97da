// Package apitest checks HTTP APIs against their OpenAPI document, in tests: requests and answers
// must be as described, and each described answer must occur.
package apitest

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
)

// Description is an OpenAPI document and the answers that tests have seen. Its methods are safe for
// concurrent use.
type Description struct {
	*openapi3.T
	unsaid *regexp.Regexp
	seen   sync.Map // answers, as "POST /v1/check 200"
}

// Load reads a document, or panics. Unsaid matches the reasons of refusals with 400 that the
// document cannot express.
func Load(text []byte, unsaid string) *Description {
	doc, err := openapi3.NewLoader().LoadFromData(text)
	if err != nil {
		panic(err)
	}
	return &Description{T: doc, unsaid: regexp.MustCompile(unsaid)}
}

// Check returns an API that fails the test when a request or its answer is not as described: the
// API and the document must accept the same requests.
func (d *Description) Check(t testing.TB, api http.Handler) http.Handler {
	return checked{d, t, api}
}

type checked struct {
	*Description
	t   testing.TB
	api http.Handler
}

// ServeHTTP serves a request, and compares it and its answer with the document.
func (h checked) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, broken := io.ReadAll(r.Body)
	if broken != nil { // half a body cannot be compared
		r.Body = io.NopCloser(io.MultiReader(bytes.NewReader(body), rest{broken}))
		h.api.ServeHTTP(w, r)
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	answer := httptest.NewRecorder()
	h.api.ServeHTTP(answer, r)
	if err := h.compare(r, body, answer); err != nil {
		h.t.Errorf("%s %s: %.200s: %d %.500s:\nnot as described: %.500v",
			r.Method, r.URL, body, answer.Code, answer.Body, err)
	}
	maps.Copy(w.Header(), answer.Header())
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes())
}

// rest is what follows half a body.
type rest struct{ err error }

func (r rest) Read([]byte) (int, error) { return 0, r.err }

// compare compares a request and its answer with the document.
func (d *Description) compare(
	r *http.Request, body []byte, answer *httptest.ResponseRecorder,
) error {
	path := d.Paths.Value(r.URL.Path)
	if path == nil {
		if answer.Code != http.StatusNotFound {
			return errors.New("the path is not described")
		}
		return nil
	}
	method := r.Method
	if method == http.MethodHead && answer.Code == http.StatusOK { // it goes where GET does
		method = http.MethodGet
	}
	// The answer to other methods is described with those of the path.
	if path.GetOperation(method) == nil {
		methods := slices.Sorted(maps.Keys(path.Operations()))
		if answer.Code != http.StatusMethodNotAllowed ||
			answer.Header().Get("Allow") != strings.Join(methods, ", ") {
			return errors.New("it is no method of this path")
		}
		for _, method := range methods {
			if err := d.compareWith(path, method, r, body, answer); err != nil {
				return err
			}
		}
		return nil
	}
	return d.compareWith(path, method, r, body, answer)
}

func (d *Description) compareWith(
	path *openapi3.PathItem, method string,
	r *http.Request, body []byte, answer *httptest.ResponseRecorder,
) error {
	operation := path.GetOperation(method)
	status := strconv.Itoa(answer.Code)
	if operation.Responses.Value(status) == nil {
		status = "default"
	}
	d.seen.Store(method+" "+r.URL.Path+" "+status, true)
	r = r.Clone(r.Context())
	r.Method, r.Body = method, io.NopCloser(bytes.NewReader(body))
	r.Header.Set("Content-Type", "application/json") // which the APIs do not require
	input := &openapi3filter.RequestValidationInput{
		Request: r, QueryParams: r.URL.Query(),
		Route: &routers.Route{
			Spec: d.T, Path: r.URL.Path, PathItem: path, Method: method, Operation: operation,
		},
		Options: &openapi3filter.Options{SkipSettingDefaults: true},
	}
	if err := d.agree(answer, openapi3filter.ValidateRequest(r.Context(), input)); err != nil {
		return err
	}
	return openapi3filter.ValidateResponse(r.Context(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: input, Status: answer.Code, Header: answer.Header(),
		Body:    io.NopCloser(bytes.NewReader(answer.Body.Bytes())),
		Options: &openapi3filter.Options{IncludeResponseStatus: true},
	})
}

// agree compares an API's answer with the document's error for the request.
func (d *Description) agree(answer *httptest.ResponseRecorder, wrong error) error {
	switch answer.Code {
	case http.StatusMethodNotAllowed, http.StatusRequestEntityTooLarge,
		http.StatusServiceUnavailable: // regardless of the body
		return nil
	case http.StatusBadRequest:
		if wrong == nil && !d.unsaid.Match(answer.Body.Bytes()) {
			return errors.New("the description allows it")
		}
		return nil
	}
	return wrong
}

// Main is for TestMain: it runs the tests, and fails if an answer that is described for one of
// these paths has not occurred. It does not fail if only some of the tests were selected.
func (d *Description) Main(m *testing.M, paths ...string) {
	status := m.Run()
	all := true
	for _, name := range []string{"run", "skip", "fuzz", "list"} {
		all = all && flag.Lookup("test."+name).Value.String() == ""
	}
	if status == 0 && all {
		for _, missing := range d.unseen(paths) {
			fmt.Fprintf(os.Stderr, "%s is described, but no test was answered so\n", missing)
			status = 1
		}
	}
	os.Exit(status)
}

func (d *Description) unseen(paths []string) (list []string) {
	for _, path := range paths {
		for method, operation := range d.Paths.Value(path).Operations() {
			for status := range operation.Responses.Map() {
				answer := method + " " + path + " " + status
				if _, ok := d.seen.Load(answer); !ok {
					list = append(list, answer)
				}
			}
		}
	}
	slices.Sort(list)
	return list
}
