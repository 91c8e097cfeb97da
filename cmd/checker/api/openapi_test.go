package api

import (
	"bytes"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/offpath-io/offpath/cmd/internal/reply"
	"github.com/offpath-io/offpath/internal/testing/apitest"
)

// document is checked against all answers of the tests. The pattern lists refusals that a JSON
// schema cannot express.
var document = apitest.Load(description, `not JSON|not UTF-8|goes on|twice|there is no such rule|not a receipt|from [01] to 10*, not [0-9]+[.eE]`)

// described is an API whose requests and answers are checked against its description.
func described(t testing.TB, api http.Handler) http.Handler { return document.Check(t, api) }

// TestMain checks after all tests that each described answer has occurred.
func TestMain(m *testing.M) { document.Main(m, slices.Collect(maps.Keys(routes))...) }

// TestDescriptionIsSound also requests the document.
func TestDescriptionIsSound(t *testing.T) {
	must(t, document.Validate(t.Context()))
	for _, method := range []string{http.MethodGet, http.MethodHead} {
		w := httptest.NewRecorder()
		newAPI(t).ServeHTTP(w, httptest.NewRequest(method, DescribePath, nil))
		if w.Code != 200 || w.Header().Get("Content-Type") != "application/yaml" || !bytes.Equal(w.Body.Bytes(), description) {
			t.Errorf("%s: %d %v %.80s", method, w.Code, w.Header(), w.Body)
		}
	}
}

// TestPathsAreDescribed: each path and its one method, and no others.
func TestPathsAreDescribed(t *testing.T) {
	want := make(map[string]string)
	for path, to := range routes {
		want[path] = to.method
	}
	got := make(map[string]string)
	for path, item := range document.Paths.Map() {
		switch path {
		case "/v1/auth": // of package forwardauth, and tested there
			continue
		case "/json", "/healthcheck": // of the daemon, which tests them
			continue
		}
		for method := range item.Operations() {
			got[path] += method
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("described %v, want %v", got, want)
	}
}

// fields are the names of a schema's properties, each with "?" if it is optional and "0" if it may
// be null.
func fields(schema *openapi3.Schema) map[string]string {
	names := make(map[string]string)
	for _, part := range append(openapi3.SchemaRefs{{Value: schema}}, schema.AllOf...) {
		for name, property := range part.Value.Properties {
			if names[name] = "?"; property.Value.Type.Includes("null") {
				names[name] += "0"
			}
		}
	}
	for _, part := range append(openapi3.SchemaRefs{{Value: schema}}, schema.AllOf...) {
		for _, name := range part.Value.Required {
			names[name] = strings.TrimPrefix(names[name], "?")
		}
	}
	return names
}

// fieldsOf are the names of the JSON fields of a type.
func fieldsOf(of reflect.Type) map[string]string {
	names := make(map[string]string)
	for field := range of.Fields() {
		if field.Anonymous {
			maps.Copy(names, fieldsOf(field.Type))
			continue
		}
		name, omit, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case omit != "":
			names[name] = "?"
		case field.Type.Kind() == reflect.Pointer:
			names[name] = "0"
		default:
			names[name] = ""
		}
	}
	return names
}

// TestAnswersAreDescribed compares the fields of all answers with their schemas, both ways.
func TestAnswersAreDescribed(t *testing.T) {
	for schema, value := range map[string]any{
		"Answer": Answer{}, "BatchAnswers": Answers{}, "BatchAnswer": BatchAnswer{},
		"Settled": Settled{}, "SettledAnswer": SettledAnswer{},
		"Explained": Explained{}, "Rule": Rule{}, "Part": Part{}, "Refusal": reply.Failure{},
	} {
		got, want := fields(document.Components.Schemas[schema].Value), fieldsOf(reflect.TypeOf(value))
		if !maps.Equal(got, want) {
			t.Errorf("%s: described %v, want %v", schema, got, want)
		}
	}
}

// TestRequestsAreDescribed compares the fields that the API reads with the schemas, both ways.
func TestRequestsAreDescribed(t *testing.T) {
	named := func(schema string) *openapi3.Schema { return document.Components.Schemas[schema].Value }
	ofRequests := []string{"attributes", "cost", "key", "mode", "rule", "settle"}
	explain := document.Paths.Value(ExplainPath).Post.RequestBody.Value.Content["application/json"].Schema.Value
	for _, test := range []struct {
		name   string
		schema *openapi3.Schema
		want   []string
		but    []string // read, but of no use there
	}{
		{"Question", named("Question"), ofRequests, nil},
		{"BatchQuestion", named("BatchQuestion"), ofRequests, nil},
		{"explain", explain, ofRequests, []string{"rule", "key"}},
		{"Settlement", named("Settlement"), []string{"cost", "receipt"}, nil},
		{"Batch", named("Batch"), []string{"checks"}, nil},
		{"SettlementBatch", named("SettlementBatch"), []string{"settlements"}, nil},
	} {
		got := slices.AppendSeq(slices.Clone(test.but), maps.Keys(fields(test.schema)))
		slices.Sort(got)
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: described %v, want %v", test.name, got, test.want)
		}
	}
}
