package status_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/offpath-io/offpath/internal/status"
	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
)

// A key of any bytes comes back as it was.
func TestText(t *testing.T) {
	for _, text := range []status.Text{"", "kristie|createURL", "<script>", "\xff\x00", "{\"base64\":\"\"}"} {
		data, err := json.Marshal(text)
		daemontest.Must(t, err)
		var got status.Text
		if err := json.Unmarshal(data, &got); err != nil || got != text {
			t.Errorf("%q became %s, and that %q: %v", text, data, got, err)
		}
	}
	for _, bad := range []string{`5`, `{}`, `{"base64":5}`, `null5`} {
		var got status.Text
		if err := json.Unmarshal([]byte(bad), &got); err == nil {
			t.Errorf("%s became %q", bad, got)
		}
	}
}

func TestWhatIsNoStatus(t *testing.T) {
	long := strings.Repeat("x", status.MaxText+1)
	for why, data := range map[string]string{
		"no JSON": "{", "no name": `{}`, "a long name": `{"name":"` + strings.Repeat("x", 161) + `"}`,
		"many rules":           `{"name":"a","rules":[{}` + strings.Repeat(",{}", status.MaxRules) + `]}`,
		"too long":             `{"name":"a","host":"` + strings.Repeat("x", status.MaxSize) + `"}`,
		"silent never":         `{"name":"a","every_ms":3600001}`,
		"an order to a screen": `{"name":"a\u001b[2J"}`,
		"in a rule's name":     `{"name":"a","rules":[{"rule":"\u001b[2J","name":"\u001b[2J"}]}`,
		"a rule's long name":   `{"name":"a","rules":[{"rule":"` + strings.Repeat("x", 257) + `","name":"` + strings.Repeat("x", 257) + `"}]}`,
		"a long key":           `{"name":"a","denied_keys":{"list":[{"key":"` + long + `"}]},"used_keys":{"list":[{"key":"` + long + `"}]}}`,
		"a negative count":     `{"name":"a","rules":[{"falsely_denied":-1}],"used_keys":{"list":[{"count":-1}]}}`,
		"a key's count":        `{"name":"a","denied_keys":{"list":[{"count":-1}]},"used_keys":{"list":[{"count":-1}]}}`,
		"a long key near":      `{"name":"a","denied_keys":{"list":[{"key":"` + long + `"}]},"near_keys":[{"key":"` + long + `"}]}`,
	} {
		_, err := status.DecodeChecker([]byte(data))
		_, other := status.DecodeAggregator([]byte(data))
		if !errors.Is(err, status.ErrStatus) || !errors.Is(other, status.ErrStatus) {
			t.Errorf("%s: %v, %v", why, err, other)
		}
	}
	if c, err := status.DecodeChecker([]byte(`{"name":"a","host":"` + long + `","problem":"` + long + `"}`)); err != nil ||
		len(c.Host) != status.MaxText || len(c.Problem) != status.MaxText {
		t.Errorf("texts of %d and %d bytes, %v", len(c.Host), len(c.Problem), err)
	}
	// Costs are up to 10^15 each, so a part may have counted more than that.
	const keys, more = `_keys":{"list":[{"count":9000000000000000000}]}}`, `{"name":"a","rules":[{"allowed":1000000000000001,"lost":9000000000000000000}],`
	if c, err := status.DecodeChecker([]byte(more + `"denied` + keys)); err != nil || c.Rules[0].Allowed != status.MaxCount ||
		c.Rules[0].Lost != status.MaxCount || c.Denied.List[0].Count != status.MaxCount {
		t.Errorf("huge counts: %+v, %v", c, err)
	}
	if a, err := status.DecodeAggregator([]byte(more + `"used` + keys)); err != nil || a.Used.List[0].Count != status.MaxCount {
		t.Errorf("a huge count: %+v, %v", a, err)
	}
	if c, err := status.DecodeChecker([]byte(`{"name":"a","of_the_future":[1]}`)); err != nil || c.Name != "a" {
		t.Errorf("a field of the future: %v", err)
	}
}

// Who listens hears all parts, until they say that they leave; and nobody in another's name.
func TestPublishAndListen(t *testing.T) {
	server := serverstest.NATS(t)
	heard := make(chan string, 1000)
	listener := serverstest.Connect(t, server.URL())
	daemontest.Background(t, func(ctx context.Context) error {
		return status.Listen(ctx, listener, "ns",
			func(c status.Checker) { heard <- word("checker", c.Part) }, func(a status.Aggregator) { heard <- word("aggregator", a.Part) })
	})
	speaker := serverstest.Connect(t, server.URL())
	soon := func() time.Duration { return 5 * time.Millisecond }
	checker := status.Checker{Part: status.Part{Name: "a.1f"}}
	checkerLeaves := daemontest.Background(t, func(ctx context.Context) error {
		status.PublishChecker(ctx, speaker, "ns", func() status.Checker { return checker }, soon)
		return nil
	})
	aggregator := status.Aggregator{Part: status.Part{Name: "b"}}
	aggregatorLeaves := daemontest.Background(t, func(ctx context.Context) error {
		status.PublishAggregator(ctx, speaker, "ns", func() status.Aggregator { return aggregator })
		return nil
	})
	await(t, heard, "checker a.1f")
	for _, forged := range []string{"ns.status.v1.checker.x", "ns.status.v1.aggregator.x", "other.status.v1.checker.forged"} {
		daemontest.Must(t, speaker.Publish(forged, []byte(`{"name":"forged"}`)))
	}
	checkerLeaves()
	aggregatorLeaves()
	seen := await(t, heard, "aggregator b leaves", "checker a.1f leaves")
	if strings.Contains(seen, "forged") {
		t.Errorf("heard %s", seen)
	}
}

func word(kind string, p status.Part) string {
	text := kind + " " + p.Name
	if p.Leaving {
		text += " leaves"
	}
	return text
}

func await(t *testing.T, heard <-chan string, wanted ...string) string {
	t.Helper()
	all := daemontest.Collect(t, fmt.Sprintf("all of %q are heard", wanted), heard, func(got string) bool {
		wanted = slices.DeleteFunc(wanted, func(want string) bool { return want == got })
		return len(wanted) == 0
	})
	return strings.Join(all, "\n")
}

func TestInterval(t *testing.T) {
	for checkers, want := range map[int]time.Duration{0: time.Second, 500: time.Second, 1000: 2 * time.Second, 10_000: 20 * time.Second} {
		if got := status.Interval(checkers); got != want {
			t.Errorf("%d checkers: %v, want %v", checkers, got, want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"name":"a","rules":[{"rule":"r","allowed":1}],"denied_keys":{"span_ms":1,"list":[{"key":{"base64":"/w=="}}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := status.DecodeChecker(data)
		if err != nil {
			return
		}
		again, err := json.Marshal(c)
		daemontest.Must(t, err)
		if _, err := status.DecodeChecker(again); err != nil && len(again) <= status.MaxSize {
			t.Fatalf("%s became %s: %v", data, again, err)
		}
	})
}
