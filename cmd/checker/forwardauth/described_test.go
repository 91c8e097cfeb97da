package forwardauth

import (
	"testing"

	"github.com/offpath-io/offpath/cmd/checker/api"
	"github.com/offpath-io/offpath/internal/testing/apitest"
)

// described checks the answers of all tests. The pattern lists refusals that a schema cannot
// express: those of headers, of times, and of parameters that come twice.
var described = apitest.Load(api.Description(), `not trusted|denied=..403|as the client sent it|original |want one duration|bytes, more than|about:blank`)

// TestMain looks whether each answer that is described has occurred, after all tests.
func TestMain(m *testing.M) { described.Main(m, Path) }
