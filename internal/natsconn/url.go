package natsconn

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/offpath-io/offpath/internal/flags"
	"github.com/offpath-io/offpath/pkg/events/natsbus"
)

// DefaultNamespace names the fleet that no --namespace names.
const DefaultNamespace = "offpath"

// AddFleetFlags adds the flags --nats and --namespace, which name a fleet. *namespace holds its
// default.
func AddFleetFlags(s *pflag.FlagSet, servers, namespace *string) {
	flags.Add(s, servers, "nats",
		"`URL` of the fleet's NATS server; separate several servers of a cluster by commas", URL)
	flags.Add(s, namespace, "namespace",
		"`NAME` of the fleet; fleets with different names can share NATS and Redis", Name)
}

// Name takes a name that can be part of a NATS subject: 1 to 64 letters, digits, '-' and '_'.
func Name(text string) (string, error) { return text, natsbus.CheckName(text) }

// URL takes the URL of a NATS server, or several of one cluster, with commas between; nats:// may
// be left out. Its errors show no password.
func URL(text string) (string, error) {
	var servers []string
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		if !strings.Contains(part, "://") {
			part = "nats://" + part
		}
		if err := checkURL(part); err != nil {
			return "", fmt.Errorf("%w (want a URL such as nats://127.0.0.1:4222)", err)
		}
		servers = append(servers, part)
	}
	return strings.Join(servers, ","), nil
}

func checkURL(text string) error {
	u, err := url.Parse(text)
	if err != nil {
		return errors.New("not a URL") // its own error quotes the text, and so a password
	}
	switch u.Scheme {
	case "nats", "tls", "ws", "wss":
	default:
		return fmt.Errorf("unknown scheme %q", u.Scheme)
	}
	if u.Hostname() == "" {
		return errors.New("a URL without a host")
	}
	// The rest is not quoted either: half of a password may have been taken for a port or a path.
	if _, err := strconv.ParseUint(u.Port(), 10, 16); u.Port() != "" && err != nil {
		return errors.New("a URL whose port is not a number up to 65535")
	}
	if u.Path != "" && u.Path != "/" && u.Scheme != "ws" && u.Scheme != "wss" {
		return errors.New("a URL with a path (in a password, write / as %2F)")
	}
	return nil
}
