// Package doortest holds HTTP doors against their description, in tests: what a door is asked and answers must be as OpenAPI
// has it, and what is described must occur.
package doortest

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

// Description is an OpenAPI document, and what of it tests have seen. It is safe for concurrent use.
type Description struct {
	*openapi3.T
	unsaid *regexp.Regexp
	seen   sync.Map // answers, as "POST /v1/check 200"
}

// Load reads a document, or panics. Unsaid is a regular expression for reasons by which a door refuses with 400 what the
// document cannot forbid.
func Load(text []byte, unsaid string) *Description {
	doc, err := openapi3.NewLoader().LoadFromData(text)
	if err != nil {
		panic(err)
	}
	return &Description{T: doc, unsaid: regexp.MustCompile(unsaid)}
}

// Hold returns a door that does as the other, and is an error of the test when a request or its answer is not as described: the
// door and the document take the same requests.
func (d *Description) Hold(t testing.TB, door http.Handler) http.Handler { return held{d, t, door} }

type held struct {
	*Description
	t    testing.TB
	door http.Handler
}

// ServeHTTP serves a request, and looks at it.
func (h held) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, broken := io.ReadAll(r.Body)
	if broken != nil { // nothing can be said of half a body
		r.Body = io.NopCloser(io.MultiReader(bytes.NewReader(body), rest{broken}))
		h.door.ServeHTTP(w, r)
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	answer := httptest.NewRecorder()
	h.door.ServeHTTP(answer, r)
	if err := h.compare(r, body, answer); err != nil {
		h.t.Errorf("%s %s: %.200s: %d %.500s:\nnot as described: %.500v", r.Method, r.URL, body, answer.Code, answer.Body, err)
	}
	maps.Copy(w.Header(), answer.Header())
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes())
}

// rest is what follows half a body.
type rest struct{ err error }

func (r rest) Read([]byte) (int, error) { return 0, r.err }

// compare holds a request and its answer against the document.
func (d *Description) compare(r *http.Request, body []byte, answer *httptest.ResponseRecorder) error {
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
	if path.GetOperation(method) == nil { // what other methods are answered is described with those that there are
		methods := slices.Sorted(maps.Keys(path.Operations()))
		if answer.Code != http.StatusMethodNotAllowed || answer.Header().Get("Allow") != strings.Join(methods, ", ") {
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

func (d *Description) compareWith(path *openapi3.PathItem, method string, r *http.Request, body []byte, answer *httptest.ResponseRecorder) error {
	operation := path.GetOperation(method)
	status := strconv.Itoa(answer.Code)
	if operation.Responses.Value(status) == nil {
		status = "default"
	}
	d.seen.Store(method+" "+r.URL.Path+" "+status, true)
	r = r.Clone(r.Context())
	r.Method, r.Body = method, io.NopCloser(bytes.NewReader(body))
	r.Header.Set("Content-Type", "application/json") // which the doors do not ask for
	input := &openapi3filter.RequestValidationInput{
		Request: r, QueryParams: r.URL.Query(),
		Route:   &routers.Route{Spec: d.T, Path: r.URL.Path, PathItem: path, Method: method, Operation: operation},
		Options: &openapi3filter.Options{SkipSettingDefaults: true},
	}
	if err := d.agree(answer, openapi3filter.ValidateRequest(r.Context(), input)); err != nil {
		return err
	}
	return openapi3filter.ValidateResponse(r.Context(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: input, Status: answer.Code, Header: answer.Header(), Body: io.NopCloser(bytes.NewReader(answer.Body.Bytes())),
		Options: &openapi3filter.Options{IncludeResponseStatus: true},
	})
}

// agree holds what a door did with a request against what is wrong with that by the document.
func (d *Description) agree(answer *httptest.ResponseRecorder, wrong error) error {
	switch answer.Code {
	case http.StatusMethodNotAllowed, http.StatusRequestEntityTooLarge, http.StatusServiceUnavailable: // before the body is read, or whatever it says
		return nil
	case http.StatusBadRequest:
		if wrong == nil && !d.unsaid.Match(answer.Body.Bytes()) {
			return errors.New("the description allows it")
		}
		return nil
	}
	return wrong
}

// Main is for TestMain: it runs the tests, and fails if an answer that is described for one of these paths has not occurred in
// any, unless only some of the tests were to run.
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
