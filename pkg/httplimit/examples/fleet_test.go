package examples

import (
	"testing"

	"github.com/offpath-io/offpath"
	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/fleettest"
	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/identity"
)

// In each family, two services of a fleet share limits by user and by address.
func TestFleet(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			bus := fleettest.Start(t).URL()
			start := func() (url string, checker *check.Checker) {
				participant, err := offpath.Start(t.Context(), offpath.Options{NATS: bus, Rules: `
rules:
  - {name: per-user, key: [user], limit: 2/day}
  - {name: per-ip, key: [ip], limit: 4/day}`})
				must(t, err)
				t.Cleanup(func() { must(t, participant.Close()) })
				return f.serve(t, participant.Checker()) + "/hello/world", participant.Checker()
			}
			first, _ := start()
			second, checker := start()
			expect := func(url, user string, want ...int) {
				t.Helper()
				for i, code := range want {
					if res, _, err := get(t, url, user); err != nil || res.StatusCode != code {
						t.Errorf("request %d of %q: %v, %v, want %d", i, user, res, err, code)
					}
				}
			}
			hears := func(attribute, value string) {
				t.Helper()
				daemontest.Eventually(t, "the other service knows that "+value+" is over the limit", func() bool {
					return !checker.Do(check.Request{
						Mode: check.Peek, Attributes: identity.Attributes{{Name: attribute, Value: value}},
					}).Allowed
				})
			}
			expect(first, "kristie", 200, 200, 429)
			hears("user", "kristie")
			expect(second, "kristie", 429)
			expect(first, "leo", 200, 200, 429)
			hears("ip", "127.0.0.1")
			expect(second, "", 429)
			expect(second, "somebody", 429)
		})
	}
}
