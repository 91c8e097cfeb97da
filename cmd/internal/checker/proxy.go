package checker

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/offpath-io/offpath/cmd/checker/api"
	"github.com/offpath-io/offpath/cmd/checker/forwardauth"
	"github.com/offpath-io/offpath/cmd/checker/upstream"
	"github.com/offpath-io/offpath/internal/flags"
	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/httplimit"
	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/identity/httpidentity"
	"github.com/offpath-io/offpath/pkg/limitheaders"
)

const (
	// thisMachine are the proxies that forward-auth trusts by default: a program on this machine
	// can ask the HTTP API about any client anyway.
	thisMachine = "127.0.0.0/8,::1"
	// noProxies is the value of --trusted-proxies for none.
	noProxies = "none"
	// patience is how long a client of the reverse proxy may make no progress.
	patience = 30 * time.Second
)

// outcome is the attribute that requests have which the upstream answered with one of --charge-on.
var outcome = identity.Attribute{Name: "outcome", Value: "charged"}

func (c *config) addClientFlags(s *pflag.FlagSet) {
	flags.Add(s, &c.trustedProxies, "trusted-proxies", "`LIST|none` of proxies, by address or prefix, "+
		"separated by commas, that are believed about their clients' addresses; by default those "+
		"of this machine at "+forwardauth.Path+", and none at --upstream", proxyList)
	flags.Add(s, &c.forwarding, "forwarded-header", "`NAME` of the header with the client's address: "+
		"X-Forwarded-For or Forwarded", httpidentity.ParseForwarding)
	flags.Add(s, &c.ipv6Prefix, "ipv6-prefix",
		"take the first `N` bits of an IPv6 address for one client", flags.Int(1, 128))
	flags.Add(s, &c.rateHeaders, "ratelimit-headers", "`WHICH` headers tell clients their limits: "+
		"x-ratelimit, ratelimit, none, or the number of an IETF draft",
		limitheaders.Parse)
}

func (c *config) addProxyFlags(s *pflag.FlagSet) {
	flags.Add(s, &c.upstream, "upstream", "be a reverse proxy for the service at `URL`, which is "+
		"http://, https://, or h2c:// for HTTP/2 without TLS", target)
	flags.Add(s, &c.proxy, "proxy", "`ADDRESS` of the reverse proxy, as host:port", flags.Address)
	flags.Add(s, &c.answer, "upstream-timeout",
		"longest `DURATION` before the service begins its response",
		flags.Duration(time.Millisecond, time.Hour))
	flags.Add(s, &c.chargeOn, "charge-on", "charge responses with these `STATUSES`, such as 401,403, "+
		"to the rules that match outcome: charged", statusList)
}

// checkProxy refuses settings of a reverse proxy that does not run.
func (c *config) checkProxy(given *pflag.FlagSet) error {
	for _, name := range []string{"proxy", "upstream-timeout", "charge-on"} {
		if c.upstream == "" && given.Changed(name) {
			return flags.Usagef("--%s is for the reverse proxy: it needs --upstream URL too", name)
		}
	}
	return nil
}

// proxyList checks a text for parseProxies.
func proxyList(text string) (string, error) {
	_, err := parseProxies(text)
	return text, err
}

func parseProxies(text string) ([]netip.Prefix, error) {
	if text == noProxies {
		return nil, nil
	}
	list := strings.Split(text, ",")
	for i := range list {
		list[i] = strings.TrimSpace(list[i])
	}
	return httpidentity.ParseProxies(list...)
}

func target(text string) (string, error) {
	_, err := upstream.ParseTarget(text)
	return text, err
}

// statusList checks a text for parseStatuses.
func statusList(text string) (string, error) {
	_, err := parseStatuses(text)
	return text, err
}

func parseStatuses(text string) ([]int, error) {
	var statuses []int
	for part := range strings.SplitSeq(text, ",") {
		status, err := strconv.Atoi(strings.TrimSpace(part))
		if err != nil || status < 200 || status > 599 {
			return nil, fmt.Errorf("%.20q: want statuses from 200 to 599, with commas between", part)
		}
		statuses = append(statuses, status)
	}
	return statuses, nil
}

// identityOf returns how requests are read; byDefault are the proxies without --trusted-proxies.
func (c config) identityOf(byDefault string) (httpidentity.Options, error) {
	text := c.trustedProxies
	if text == "" {
		text = byDefault
	}
	proxies, err := parseProxies(text)
	return httpidentity.Options{
		TrustedProxies: proxies, Forwarding: c.forwarding, IPv6Prefix: c.ipv6Prefix,
	}, err
}

// newLimit makes a limit of requests, and the builder of its identities.
func (c config) newLimit(
	checker *check.Checker, byDefault string,
) (*httplimit.Limit, *httpidentity.Builder, error) {
	read, err := c.identityOf(byDefault)
	if err != nil {
		return nil, nil, err
	}
	builder, err := httpidentity.NewBuilder(read)
	if err != nil {
		return nil, nil, err
	}
	wait := c.acquire
	if wait == 0 {
		wait = -1 // not at all, for httplimit
	}
	limit, err := httplimit.New(checker, httplimit.Options{
		Identity: read, Headers: c.rateHeaders, Acquire: wait,
	})
	return limit, builder, err
}

// newHandlers makes the HTTP handlers of this checker.
func newHandlers(
	c config, checker *check.Checker, service func() *tls.Config, log *slog.Logger,
) (h handlers, err error) {
	limit, builder, err := c.newLimit(checker, thisMachine)
	if err != nil {
		return h, fmt.Errorf("forward-auth: %w", err)
	}
	auth := forwardauth.New(forwardauth.Options{
		Limit: limit.Handler, Trusts: builder.Trusts, Log: log,
	})
	// Forward-auth is not guarded: it has the Origin of the request that it is asked about.
	checks := c.origins.Guard(api.New(checker, c.acquire))
	h.api = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == forwardauth.Path {
			auth.ServeHTTP(w, r)
			return
		}
		checks.ServeHTTP(w, r)
	})
	if c.upstream == "" {
		return h, nil
	}
	if h.proxied, err = newProxy(c, checker, service, log); err != nil {
		err = fmt.Errorf("proxy: %w", err)
	}
	return h, err
}

func newProxy(
	c config, checker *check.Checker, service func() *tls.Config, log *slog.Logger,
) (http.Handler, error) {
	limit, builder, err := c.newLimit(checker, noProxies)
	if err != nil {
		return nil, err
	}
	to, err := upstream.ParseTarget(c.upstream)
	if err != nil {
		return nil, err
	}
	limited := limit.Handler
	if c.chargeOn != "" {
		statuses, err := parseStatuses(c.chargeOn)
		if err != nil {
			return nil, err
		}
		charged, err := limit.ChargeOn(outcome, statuses...)
		if err != nil {
			return nil, err
		}
		limited = func(next http.Handler) http.Handler { return limit.Handler(charged(next)) }
	}
	told := func(name string) bool { return c.chargeOn != "" && name == outcome.Name }
	if unknown := slices.DeleteFunc(limit.Unknown(), told); len(unknown) > 0 {
		log.Warn("rules need attributes that a proxied request does not have: "+
			"take header:NAME or cookie:NAME instead", "attributes", unknown)
	}
	return upstream.New(upstream.Options{
		Target: to, Limit: limited, Identity: builder, Forwarding: c.forwarding, Answer: c.answer,
		Patience: cmp.Or(c.clientTime, patience), Log: log, TLS: service,
	}), nil
}
