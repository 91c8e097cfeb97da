package checker

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/offpath-io/offpath/cmd/checker/api"
	"github.com/offpath-io/offpath/internal/natsconn"
	"github.com/offpath-io/offpath/internal/natssource"
	"github.com/offpath-io/offpath/internal/redact"
	"github.com/offpath-io/offpath/internal/version"
	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/rules"
)

// banner is the text that the daemon prints when it starts.
type banner struct {
	config      config
	rules       *rules.Set // nil if there are none yet
	version     version.Info
	nats        string
	http, admin string // URLs
	grpc        string // an address; "" if there is no gRPC API
	proxy       string // a URL; "" if there is no reverse proxy
}

func printBanner(stdout io.Writer, b banner) error {
	var text strings.Builder
	b.writeParts(&text)
	b.writeRules(&text)
	if b.rules != nil {
		b.writeTry(&text)
	}
	b.writeChange(&text)
	text.WriteString("Ctrl-C stops it.\n")
	_, err := io.WriteString(stdout, text.String())
	return err
}

func (b banner) writeParts(w io.Writer) {
	embedded := b.config.nats == ""
	kind := "checker " + b.version.Version + ": joins a fleet"
	if embedded {
		kind = b.version.Version + ": everything in one process"
	}
	fmt.Fprintf(w, "offpath %s\n\n", kind)
	fmt.Fprintf(w, "  HTTP API    %s%s\n", b.http, api.Path)
	if b.grpc != "" {
		fmt.Fprintf(w, "  gRPC API    %s, Envoy's rate limit service v3, and its quota service\n", b.grpc)
	}
	if b.proxy != "" {
		fmt.Fprintf(w, "  proxy       %s, for %s\n", b.proxy, b.config.upstream)
	}
	fmt.Fprintf(w, "  admin       %s/metrics, /healthz, /readyz\n", b.admin)
	if embedded {
		fmt.Fprintf(w, "  console     %s/\n", b.admin)
		fmt.Fprintf(w, "  NATS        %s (embedded; other checkers join with --nats)\n", b.nats)
		fmt.Fprintf(w, "  aggregator  embedded; its counts are in memory, and end with it\n")
	} else {
		fmt.Fprintf(w, "  NATS        %s\n", redact.URLs(b.nats))
	}
	fmt.Fprintf(w, "  namespace   %s\n\n", b.config.namespace)
}

// mostShown is how many rules a banner shows.
const mostShown = 40

func (b banner) writeRules(w io.Writer) {
	fmt.Fprintf(w, "Rules (%s):\n", b.source())
	if b.rules == nil {
		fmt.Fprint(w, "  none yet; nothing is decided before they are there\n\n")
		return
	}
	all, widest := b.rules.Rules(), 0
	more := len(all) - mostShown
	if more > 0 {
		all = all[:mostShown]
	}
	for _, r := range all {
		widest = max(widest, len(r.Name))
	}
	for _, r := range all {
		fmt.Fprintf(w, "  %-*s  %s\n", widest, r.Name, inWords(r))
	}
	if more > 0 {
		fmt.Fprintf(w, "  and %d more\n", more)
	}
	fmt.Fprintln(w)
}

// source returns the source of the rules.
func (b banner) source() string {
	bucket := "bucket " + natssource.Name(b.config.namespace)
	switch {
	case !b.config.rulesFromBucket():
		return b.config.rulesFrom
	case b.config.nats == "":
		return "the demo's, in " + bucket
	}
	return bucket
}

// writeChange explains how to change the rules of a bucket. A file needs no explanation.
func (b banner) writeChange(w io.Writer) {
	if b.config.rulesFromBucket() {
		fmt.Fprintf(w, "Change the rules while it runs:\n  offpath rules apply -f FILE --nats %s%s%s\n\n",
			redact.URLs(b.nats), b.namespaceFlag(), b.keyFlag())
	}
}

func (b banner) namespaceFlag() string {
	if b.config.namespace == natsconn.DefaultNamespace {
		return ""
	}
	return " --namespace " + b.config.namespace
}

// keyFlag names the demo's signing key. That of a fleet is where only operators have it.
func (b banner) keyFlag() string {
	if b.config.demoKey == "" {
		return ""
	}
	return " --rules-signing-key-file " + b.config.demoKey
}

// inWords describes a rule: 100 per 1h in 60 buckets, by user and api, if api is "createURL".
func inWords(r *rules.Rule) string {
	var b strings.Builder
	if r.Unlimited {
		b.WriteString("unlimited")
	} else {
		fmt.Fprintf(&b, "%d per %s", r.Limit, span(r.Window.Length))
	}
	switch {
	case r.Algorithm == rules.FixedWindow:
		b.WriteString(" in a fixed window")
	case r.Algorithm != rules.SlidingWindow:
		fmt.Fprintf(&b, " as a %v", r.Algorithm)
	case r.Window.Buckets > 1:
		fmt.Fprintf(&b, " in %d buckets", r.Window.Buckets)
	}
	if len(r.Key) > 0 {
		fmt.Fprintf(&b, ", by %s", strings.Join(r.Key, " and "))
	}
	for i, m := range r.Match {
		word := " and"
		if i == 0 {
			word = ", if"
		}
		switch m.Op {
		case rules.Present:
			fmt.Fprintf(&b, "%s there is a %s", word, m.Name)
		case rules.Glob:
			fmt.Fprintf(&b, "%s %s matches %q", word, m.Name, m.Value)
		case rules.Prefix:
			fmt.Fprintf(&b, "%s %s begins with %q", word, m.Name, m.Value)
		default:
			fmt.Fprintf(&b, "%s %s is %q", word, m.Name, m.Value)
		}
	}
	return b.String()
}

// writeTry prints a command that is answered 200 until the limit is used up, and 429 from then on.
func (b banner) writeTry(w io.Writer) {
	attributes, cost, requests := example(b.rules)
	body, err := json.Marshal(struct {
		Attributes map[string]string `json:"attributes"`
		Cost       int64             `json:"cost,omitempty"`
	}{attributes, cost})
	if err != nil { // unreachable: strings and a number
		return
	}
	quoted := strings.ReplaceAll(string(body), "'", `\u0027`)
	fmt.Fprintf(w, "Try it; this asks %d times, "+
		"and is answered 200 until the limit is used up, then 429:\n", requests)
	fmt.Fprintf(w, "  curl -s%s -w '%%{http_code}\\n' -d '%s' '%s%s?[1-%d]'\n\n",
		b.curlFiles(), quoted, b.http, api.Path, requests)
}

// curlFiles are the arguments with which curl trusts the checker, and the checker curl.
func (b banner) curlFiles() (args string) {
	if b.config.tls.http.Cert != "" {
		args = " --cacert FILE"
	}
	if b.config.tls.http.ClientCA != "" {
		args += " --cert FILE --key FILE"
	}
	return args
}

// example returns attributes that the first rule applies to, and how often to ask, and at what cost
// (0 for the default), to use up the least limit among the rules that then apply.
func example(set *rules.Set) (attributes map[string]string, cost int64, requests int64) {
	first := set.Rules()[0]
	attributes = make(map[string]string)
	for _, m := range first.Match {
		attributes[m.Name] = m.Value
		if m.Op == rules.Present {
			attributes[m.Name] = sample(m.Name)
		}
	}
	addKey(attributes, first)
	// Further rules may apply to these; each that does may ask for more, and so bring in others.
	applying := set.Find(nil, identity.FromMap(attributes))
	for n := 0; n < len(applying); {
		n = len(applying)
		for _, r := range applying {
			addKey(attributes, r)
		}
		applying = set.Find(nil, identity.FromMap(attributes))
	}
	limit := first.Limit
	for _, r := range applying {
		limit = min(limit, r.Limit)
	}
	const few = 15
	if limit < 2*few {
		return attributes, 0, limit + 5
	}
	cost = limit / few
	return attributes, cost, limit/cost + 5
}

func addKey(attributes map[string]string, r *rules.Rule) {
	for _, name := range r.Key {
		if _, ok := attributes[name]; !ok {
			attributes[name] = sample(name)
		}
	}
}

// sample returns a value for an attribute.
func sample(name string) string {
	switch name {
	case "user":
		return "kristie"
	case "ip":
		return "203.0.113.9"
	}
	return "example"
}
