package forwardauth

import (
	"testing"

	checkerdoor "github.com/offpath-io/offpath/cmd/checker/door"
	"github.com/offpath-io/offpath/cmd/checker/door/doortest"
)

// described is held against the door of all tests. What proxies tell in headers, how long to wait, and that nothing is asked for twice, no schema knows.
var described = doortest.Load(checkerdoor.Description(), `not trusted|denied=..403|as the client sent it|original |want one duration|bytes, more than|about:blank`)

// TestMain looks whether each answer that is described has occurred, after all tests.
func TestMain(m *testing.M) { described.Main(m, Path) }
