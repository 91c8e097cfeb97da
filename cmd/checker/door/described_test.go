package door

import (
	"maps"
	"net/http"
	"slices"
	"testing"

	"github.com/offpath-io/offpath/cmd/checker/door/doortest"
)

// document is held against all doors of the tests. The pattern lists refusals that a JSON schema
// cannot express.
var document = doortest.Load(description, `not JSON|not UTF-8|goes on|twice|there is no such rule|not a receipt|from [01] to 10*, not [0-9]+[.eE]`)

// described is a door whose requests and answers are held against its description.
func described(t testing.TB, door http.Handler) http.Handler { return document.Hold(t, door) }

// TestMain looks whether each answer that is described has occurred, after all tests.
func TestMain(m *testing.M) { document.Main(m, slices.Collect(maps.Keys(routes))...) }
