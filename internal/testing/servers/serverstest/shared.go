package serverstest

import (
	"fmt"
	"log"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/offpath-io/offpath/internal/testing/servers"
)

// Main runs the tests of a package with one nats-server for all of them that do not stop theirs.
// The server is at *shared while they run.
func Main(m *testing.M, options servers.NATSOptions, shared **servers.NATS) {
	n, err := servers.StartNATS(options)
	if err != nil {
		log.Fatal(err)
	}
	*shared = n
	code := m.Run()
	if err := n.Stop(); err != nil {
		log.Fatal(err)
	}
	os.Exit(code)
}

var (
	namespaces sync.Map
	tests      atomic.Int64
)

// Namespace is one for a test in a server that it shares: always the same one, and another when the
// test is run again.
func Namespace(t testing.TB) string {
	name, known := namespaces.Load(t)
	if !known {
		name, _ = namespaces.LoadOrStore(t, fmt.Sprint("test-", tests.Add(1)))
	}
	return name.(string)
}
