package api

import (
	"maps"
	"net/http"
	"slices"
	"testing"

	"github.com/offpath-io/offpath/internal/testing/apitest"
)

// document is checked against all answers of the tests. The pattern lists refusals that a JSON
// schema cannot express.
var document = apitest.Load(description, `not JSON|not UTF-8|goes on|twice|there is no such rule|not a receipt|from [01] to 10*, not [0-9]+[.eE]`)

// described is an API whose requests and answers are checked against its description.
func described(t testing.TB, api http.Handler) http.Handler { return document.Check(t, api) }

// TestMain checks after all tests that each described answer has occurred.
func TestMain(m *testing.M) { document.Main(m, slices.Collect(maps.Keys(routes))...) }
