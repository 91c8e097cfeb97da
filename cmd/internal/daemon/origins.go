package daemon

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/offpath-io/offpath/cmd/internal/reply"
	"github.com/offpath-io/offpath/internal/flags"
)

// Origins are the sites whose pages may send requests to a daemon, as browsers name them in the
// header Origin, separated by commas; "*" is all of them. The zero value is none: programs send no
// such header.
type Origins string

// AddFlags adds the flag --allow-origin, for what a daemon serves over HTTP.
func (o *Origins) AddFlags(s *pflag.FlagSet, served string) {
	flags.Add(s, o, "allow-origin", "`SITES`, separated by commas, whose pages may call "+served+
		" from a browser, such as https://ops.example.com; * for all",
		parseOrigins)
}

func parseOrigins(text string) (Origins, error) {
	sites := strings.Split(strings.ToLower(text), ",")
	for i := range sites {
		sites[i] = strings.TrimSpace(sites[i])
		site, err := url.Parse(sites[i])
		if sites[i] != "*" && (err != nil || site.Host == "" || sites[i] != site.Scheme+"://"+site.Host) {
			return "", fmt.Errorf("%.80q: want a site such as https://ops.example.com, or *", sites[i])
		}
	}
	return Origins(strings.Join(sites, ",")), nil
}

// Guard answers requests from pages of other sites with 403. It ignores whether Host is the same: a
// site can give its own name the address of this daemon (DNS rebinding), and these APIs have no
// pages of their own.
func (o Origins) Guard(h http.Handler) http.Handler {
	known := strings.Split(string(o), ",")
	foreign := func(site string) bool {
		return !slices.Contains(known, "*") && (site == "" || !slices.Contains(known, strings.ToLower(site)))
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if slices.ContainsFunc(r.Header["Origin"], foreign) {
			reply.Error(w, http.StatusForbidden, "asked by a page of another site: see --allow-origin")
			return
		}
		h.ServeHTTP(w, r)
	})
}
