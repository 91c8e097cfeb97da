package httpidentity_test

import (
	"fmt"
	"log"
	"net/http/httptest"

	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/identity/httpidentity"
)

// A service behind one proxy, whose rules limit users per address. The reader is made once for a
// set of rules.
func Example() {
	trusted, err := httpidentity.ParseProxies("10.0.0.0/8")
	if err != nil {
		log.Fatal(err)
	}
	builder, err := httpidentity.NewBuilder(httpidentity.Options{
		TrustedProxies: trusted,
		Sources:        map[string]httpidentity.Source{"user": httpidentity.FromHeader("X-User")},
	})
	if err != nil {
		log.Fatal(err)
	}
	reader, err := builder.Reader([]string{"user", "ip"})
	if err != nil {
		log.Fatal(err)
	}

	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "10.0.0.1:4711"
	r.Header.Set("X-User", "kristie")
	r.Header.Set("X-Forwarded-For", "6.6.6.6, 2001:db8:1:2::3") // the client wrote the first, the proxy the second

	attributes := reader.Append(nil, r)
	key := identity.AppendKey(nil, []string{"user", "ip"}, attributes)
	fmt.Println(string(key))

	hasher, err := identity.NewHasher([]byte("a secret of 16 bytes or more"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(hasher.Hash(string(key))), "bytes that tell nobody who it is")
	// Output:
	// kristie|2001:db8:1:2::/64
	// 22 bytes that tell nobody who it is
}
