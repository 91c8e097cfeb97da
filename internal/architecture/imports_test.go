package architecture

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// Modules of others that several packages may import.
const (
	protobuf = "google.golang.org/protobuf/..."
	natsgo   = "github.com/nats-io/nats.go/..."
	nkeys    = "github.com/nats-io/nkeys"
	goredis  = "github.com/redis/go-redis/v9/..."
	yaml     = "go.yaml.in/yaml/v4"
	grpc     = "google.golang.org/grpc/..."
	envoy    = "github.com/envoyproxy/go-control-plane/envoy/..."
	pflag    = "github.com/spf13/pflag"
)

// anything stands for no restriction but that of TestCheckAndAggregateMeetAsBytes.
const anything = "..."

// allowed is what each package may import besides the standard library. Test files may import what
// they like, but see TestCheckAndAggregateMeetAsBytes. Names of this module are directories; the
// first pattern that fits a package counts.
var allowed = []struct {
	pattern string
	imports []string
}{
	{"pkg/window", nil},
	{"pkg/identity", []string{"github.com/dchest/siphash"}},
	{"pkg/identity/httpidentity", []string{"pkg/identity", "github.com/gaissmai/bart"}},
	{"pkg/check/internal/fleetclock", nil},
	{"pkg/check/internal/forecast", []string{"pkg/window"}},
	{"pkg/check/internal/queue", nil},
	{"pkg/check/internal/permit", []string{"pkg/window"}},
	{"pkg/check/internal/settlement", []string{"pkg/events"}},
	{"pkg/rules", []string{"pkg/window", "pkg/identity", "pkg/rules/internal/strictyaml", yaml}},
	{"pkg/rules/internal/strictyaml", []string{yaml, "go.yaml.in/yaml/v4/plugin/loaderlimits"}},
	{"pkg/rules/envoyrules", []string{"pkg/rules", "pkg/rules/internal/strictyaml", "pkg/window", yaml}},
	{"internal/kvwatch", []string{natsgo}},
	{"pkg/signature", []string{nkeys}},
	{"internal/natssource", []string{"internal/diskcache", "internal/kvwatch", "pkg/signature", natsgo}},
	{"internal/blocks", []string{"internal/diskcache", "internal/kvwatch", "pkg/signature", natsgo}},
	{"internal/diskcache", nil},
	{"internal/topkeys", []string{"github.com/tylertreat/BoomFilters"}},
	{"internal/rulelabel", nil},
	{"internal/uplot", nil},
	{"internal/status", []string{"pkg/rules", "pkg/window", natsgo}},

	{"pkg/events", []string{protobuf}},
	{"pkg/events/natsbus", []string{"pkg/events", natsgo}},

	{"internal/checktuning", nil},
	{"pkg/check/internal/turns", nil},
	{"pkg/check/internal/level", []string{"pkg/check/internal/fleetclock", "pkg/check/internal/forecast", "pkg/window"}},
	{"pkg/check/internal/idle", []string{"pkg/check/internal/queue", "github.com/dgraph-io/ristretto/v2/..."}},
	{"pkg/check/internal/fleetstate", []string{
		"pkg/check/internal/fleetclock", "pkg/check/internal/forecast", "pkg/events", "pkg/identity", "pkg/rules",
	}},
	{"pkg/check/internal/counter", []string{
		"pkg/check/internal/fleetstate", "pkg/check/internal/forecast", "pkg/check/internal/level",
		"pkg/check/internal/idle", "pkg/check/internal/permit", "pkg/check/internal/queue", "pkg/events", "pkg/rules", "pkg/window",
	}},
	{"pkg/check/internal/ruleset", []string{
		"pkg/check/internal/counter", "pkg/check/internal/fleetstate", "pkg/identity", "pkg/rules", "pkg/window",
	}},
	{"pkg/check/internal/evaluation", []string{
		"pkg/check/internal/counter", "pkg/check/internal/fleetstate", "pkg/check/internal/permit",
		"pkg/check/internal/ruleset", "pkg/events", "pkg/identity", "pkg/rules",
	}},
	{"pkg/check/internal/reporter", []string{
		"internal/checktuning", "pkg/check/internal/counter", "pkg/check/internal/fleetstate",
		"pkg/check/internal/forecast", "pkg/check/internal/permit", "pkg/check/internal/queue",
		"pkg/check/internal/settlement", "pkg/events", "pkg/window",
	}},
	{"pkg/check", []string{"pkg/window", "pkg/identity", "internal/checktuning", "pkg/check/internal/...", "pkg/rules", "pkg/events"}},
	{"pkg/envoyquota", []string{"pkg/check", "pkg/envoyquota/internal/shares", "pkg/identity", "pkg/rules", "pkg/window", grpc, envoy, protobuf}},
	{"pkg/envoyquota/internal/shares", nil},

	{"pkg/envoylimit", []string{
		"pkg/check", "pkg/identity", "pkg/internal/adapter", "pkg/rules", "pkg/rules/envoyrules", "pkg/window",
		grpc, envoy, protobuf, "golang.org/x/net/http/httpguts",
	}},
	{".", []string{
		"internal/blocks", "internal/diskcache", "internal/filewatch", "internal/natsclient",
		"internal/natssource", "internal/rulelabel", "internal/status", "internal/topkeys",
		"internal/version", "pkg/check", "pkg/events", "pkg/events/natsbus", "pkg/rules",
		"pkg/rules/envoyrules", "pkg/signature", natsgo,
	}},

	{"pkg/check/checktest", []string{"pkg/check", "pkg/identity", "pkg/rules", "pkg/window"}},
	{"pkg/internal/adapter", []string{"pkg/check", "pkg/identity", "pkg/rules"}},
	{"pkg/limitheaders", []string{"pkg/check", "pkg/rules", "github.com/dunglas/httpsfv"}},
	{"pkg/httplimit", []string{
		"pkg/check", "pkg/identity", "pkg/identity/httpidentity", "pkg/internal/adapter", "pkg/limitheaders",
		"pkg/rules", "github.com/felixge/httpsnoop",
	}},
	{"pkg/grpclimit", []string{
		"pkg/check", "pkg/identity", "pkg/identity/httpidentity", "pkg/internal/adapter", "pkg/limitheaders",
		"pkg/rules", grpc, "google.golang.org/genproto/googleapis/rpc/...", protobuf,
	}},

	{"pkg/aggregate", []string{"pkg/window", "pkg/events", "pkg/aggregate/storage", "pkg/aggregate/internal/..."}},
	{"pkg/aggregate/storage", []string{"pkg/window", "pkg/events"}},
	{"pkg/aggregate/internal/queue", nil},
	{"pkg/aggregate/internal/fleet", []string{"pkg/events"}},
	{"pkg/aggregate/internal/member", []string{"pkg/events"}},
	{"pkg/aggregate/internal/wire", []string{"pkg/aggregate/storage", "pkg/events", "pkg/window"}},
	{"pkg/aggregate/internal/limits", []string{"pkg/aggregate/internal/wire", "pkg/aggregate/storage", "pkg/events", "pkg/window"}},
	{"pkg/aggregate/internal/refund", []string{"pkg/aggregate/storage"}},
	{"pkg/aggregate/internal/merge", []string{
		"pkg/aggregate/internal/queue", "pkg/aggregate/internal/refund", "pkg/aggregate/internal/wire", "pkg/aggregate/storage", "pkg/events",
	}},
	{"pkg/aggregate/internal/alarm", []string{
		"pkg/aggregate/internal/queue", "pkg/aggregate/internal/refund", "pkg/aggregate/internal/wire", "pkg/aggregate/storage", "pkg/events",
		"pkg/window",
	}},
	{"pkg/aggregate/redisstore", []string{"pkg/aggregate/storage", "pkg/window", goredis}},
	{"pkg/aggregate/memstore", []string{"pkg/aggregate/storage", "pkg/window"}},
	{"pkg/aggregate/natsmemory", []string{"pkg/aggregate", "pkg/aggregate/storage", natsgo}},

	{"deploy", nil},
	{"cmd/internal/console/history", nil},
	{"cmd/...", []string{anything}},
	// As a service would have them.
	{"examples/...", []string{".", "pkg/httplimit"}},
	{"loadtest/...", []string{anything}},

	{"internal/tracing/...", []string{anything}},
	{"internal/redact", nil},
	{"internal/flags", []string{"internal/redact", "github.com/spf13/cobra", pflag}},
	{"internal/filewatch", []string{"github.com/fsnotify/fsnotify"}},
	{"internal/tlsfiles", []string{"internal/filewatch", "golang.org/x/sync/errgroup"}},
	{"internal/natsclient", []string{"internal/redact", "pkg/events/natsbus", natsgo}},
	{"internal/natsconn", []string{"internal/flags", "internal/tlsfiles", "pkg/events/natsbus", natsgo, "github.com/nats-io/jwt/v2", nkeys, pflag}},
	{"internal/redisconn", []string{"internal/flags", "internal/tlsfiles", "pkg/aggregate/redisstore", pflag}},
	{"internal/version", nil},
	// What tests share. Only the load test's code, which brings servers and networks of its own,
	// imports it besides tests: see TestOnlyTestsImportTestHelpers.
	{"internal/testing/...", []string{anything}},
	// Tests only: end-to-end ones may import both sides, which is why they have a package of their
	// own.
	{"internal/architecture", nil},
	{"internal/endtoend", nil},
}

// allowedFor returns what a package may import, and whether the table knows it.
func allowedFor(name string) ([]string, bool) {
	for _, row := range allowed {
		if within(name, row.pattern) {
			return row.imports, true
		}
	}
	return nil, false
}

func TestImports(t *testing.T) {
	all := packages(t)
	if len(all) < 2 {
		t.Fatalf("found only the packages %v", slices.Collect(maps.Keys(all)))
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		patterns, ok := allowedFor(name)
		if !ok {
			t.Errorf("package %s is not in the table of this test: add it there and to the package table of docs/packages.md", name)
			continue
		}
		for _, imported := range forbidden(all[name].code, patterns) {
			t.Errorf("package %s imports %s; besides the standard library it may import only %q", name, imported, patterns)
		}
	}
}

// forbidden returns the imports that fit none of the patterns.
func forbidden(imports, patterns []string) []string {
	var list []string
	for _, imported := range imports {
		fits := func(pattern string) bool { return pattern == anything || within(imported, pattern) }
		if !slices.ContainsFunc(patterns, fits) {
			list = append(list, imported)
		}
	}
	return list
}

// Helpers of tests belong to no program that others run: only tests, each other and the load test
// use them.
func TestOnlyTestsImportTestHelpers(t *testing.T) {
	all := packages(t)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if within(name, "internal/testing/...") || within(name, "loadtest/...") {
			continue
		}
		if way := route(all, all[name].code, "internal/testing/..."); way != nil {
			t.Errorf("package %s imports %s", name, strings.Join(way, ", which imports "))
		}
	}
}

// The checker and the aggregator meet as bytes only: neither side imports the other, not through a
// third package and not in its tests. What needs both is an end-to-end test and lives in
// internal/endtoend.
func TestCheckAndAggregateMeetAsBytes(t *testing.T) {
	all := packages(t)
	for _, sides := range [][2]string{{"pkg/check/...", "pkg/aggregate/..."}, {"pkg/aggregate/...", "pkg/check/..."}} {
		for _, name := range slices.Sorted(maps.Keys(all)) {
			if !within(name, sides[0]) {
				continue
			}
			if way := route(all, slices.Concat(all[name].code, all[name].tests), sides[1]); way != nil {
				t.Errorf("package %s, or a test of it, imports %s", name, strings.Join(way, ", which imports "))
			}
		}
	}
}

// route returns how the imports lead to a package that fits the pattern, or nil. Of other packages
// only what they import themselves counts, not what their tests do.
func route(all map[string]imports, from []string, pattern string) []string {
	seen := map[string]bool{}
	var search func(from []string) []string
	search = func(from []string) []string {
		for _, imported := range from {
			if within(imported, pattern) {
				return []string{imported}
			}
			if seen[imported] {
				continue
			}
			seen[imported] = true
			if rest := search(all[imported].code); rest != nil {
				return append([]string{imported}, rest...)
			}
		}
		return nil
	}
	return search(from)
}

// The checks above must be able to fail.
func TestForbiddenFindsWhatIsNotAllowed(t *testing.T) {
	for _, test := range []struct {
		imports, patterns, want []string
	}{
		{[]string{"pkg/window"}, nil, []string{"pkg/window"}},
		{[]string{"pkg/window", "pkg/events"}, []string{"pkg/window"}, []string{"pkg/events"}},
		{[]string{"pkg/events/natsbus"}, []string{"pkg/events"}, []string{"pkg/events/natsbus"}},
		{[]string{"github.com/redis/go-redis/v9/maintnotifications"}, []string{goredis}, nil},
		{[]string{"github.com/redis/go-redis/v99"}, []string{goredis}, []string{"github.com/redis/go-redis/v99"}},
		{[]string{"github.com/a/b"}, []string{anything}, nil},
	} {
		if got := forbidden(test.imports, test.patterns); !slices.Equal(got, test.want) {
			t.Errorf("of %q with %q allowed, forbidden are %q, want %q", test.imports, test.patterns, got, test.want)
		}
	}
}

func TestRouteFindsTheWayThroughOthers(t *testing.T) {
	all := map[string]imports{
		"a": {code: []string{"b", "c"}},
		"b": {code: []string{"a", "github.com/x/y"}, tests: []string{"d/e"}},
		"c": {code: []string{"d/e"}},
	}
	if got := route(all, []string{"a"}, "d/..."); !slices.Equal(got, []string{"a", "c", "d/e"}) {
		t.Errorf("the way is %q", got)
	}
	if got := route(all, []string{"b"}, "f"); got != nil {
		t.Errorf("a way to nowhere: %q", got)
	}
}
