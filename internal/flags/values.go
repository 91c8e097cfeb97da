package flags

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/offpath-io/offpath/pkg/events/natsbus"
)

// Level takes debug, info, warn or error.
func Level(text string) (slog.Level, error) {
	levels := map[string]slog.Level{
		"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError,
	}
	level, ok := levels[strings.ToLower(text)]
	if !ok {
		return 0, fmt.Errorf("%q: want debug, info, warn or error", text)
	}
	return level, nil
}

// Address takes host:port to listen on, with a numeric port; no host means every address.
func Address(text string) (string, error) {
	_, port, err := net.SplitHostPort(text)
	if err == nil {
		err = checkPort(port)
	}
	if err != nil {
		return "", fmt.Errorf("%q: want host:port, such as 127.0.0.1:8080", text)
	}
	return text, nil
}

func checkPort(port string) error {
	_, err := strconv.ParseUint(port, 10, 16)
	return err
}

// Int returns a parser of whole numbers from least to most.
func Int(least, most int) func(string) (int, error) {
	return func(text string) (int, error) {
		n, err := strconv.Atoi(text)
		if err != nil || n < least || n > most {
			return 0, fmt.Errorf("%q: want a whole number from %d to %d", text, least, most)
		}
		return n, nil
	}
}

// Float returns a parser of numbers from least to most.
func Float(least, most float64) func(string) (float64, error) {
	return func(text string) (float64, error) {
		n, err := strconv.ParseFloat(text, 64)
		if err != nil || !(n >= least && n <= most) { // nor NaN
			return 0, fmt.Errorf("%q: want a number from %g to %g", text, least, most)
		}
		return n, nil
	}
}

// Uint64 takes any whole number that is not negative.
func Uint64(text string) (uint64, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%q: want a whole number from 0", text)
	}
	return n, nil
}

// Duration returns a parser of durations from least to most, such as 50ms.
func Duration(least, most time.Duration) func(string) (time.Duration, error) {
	return func(text string) (time.Duration, error) {
		d, err := time.ParseDuration(text)
		if err != nil || d < least || d > most {
			return 0, fmt.Errorf("%q: want a duration from %v to %v, such as 50ms", text, least, most)
		}
		return d, nil
	}
}

// NATS takes the URL of a NATS server, or several of one cluster, with commas between; nats:// may be
// left out. Its errors show no password.
func NATS(text string) (string, error) {
	var servers []string
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		if !strings.Contains(part, "://") {
			part = "nats://" + part
		}
		if err := checkNATS(part); err != nil {
			return "", fmt.Errorf("%w (want a URL such as nats://127.0.0.1:4222)", err)
		}
		servers = append(servers, part)
	}
	return strings.Join(servers, ","), nil
}

func checkNATS(text string) error {
	u, err := url.Parse(text)
	if err != nil {
		return fmt.Errorf("not a URL") // its own error quotes the text, and so a password
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
	if port := u.Port(); port != "" && checkPort(port) != nil {
		return errors.New("a URL whose port is none")
	}
	if u.Path != "" && u.Path != "/" && u.Scheme != "ws" && u.Scheme != "wss" {
		return errors.New("a URL with a path (in a password, write / as %2F)")
	}
	return nil
}

// Namespace takes what can name a fleet: 1 to 64 letters, digits, '-' and '_'.
func Namespace(text string) (string, error) {
	return text, natsbus.CheckName(text)
}
