// Package signing is the flags by which commands sign what they write into the fleet's buckets, and
// trust what others have written.
package signing

import (
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"github.com/offpath-io/offpath/internal/flags"
	"github.com/offpath-io/offpath/internal/tlsfiles"
	"github.com/offpath-io/offpath/pkg/signature"
)

// Kind is what keys are for, each of which has keys of its own.
type Kind string

// The kinds. Entries are blocks of single keys.
const (
	Rules   Kind = "rules"
	Entries Kind = "entries"
)

// what are the values, in words for people.
func (k Kind) what() string {
	if k == Entries {
		return "blocks"
	}
	return string(k)
}

// Keys are those of one kind, as flags fill them. The zero value is none.
type Keys struct {
	public     string // as ParsePublicKeys reads them
	file, seed string
}

// AddPublic adds the flag of commands that read.
func (k *Keys) AddPublic(s *pflag.FlagSet, kind Kind) {
	flags.Add(s, &k.public, string(kind)+"-public-keys", "trust only "+kind.what()+
		" signed with one of these public `KEYS` from \"offpath keygen\"; two, separated by a "+
		"comma, during a rotation; without keys, whoever can write to the bucket is trusted",
		func(text string) (string, error) {
			_, err := signature.ParsePublicKeys(text)
			return text, err
		})
}

// AddSigning adds the flags of commands that write.
func (k *Keys) AddSigning(s *pflag.FlagSet, kind Kind) {
	s.StringVar(&k.file, string(kind)+"-signing-key-file", "", "`FILE` with the key that signs "+
		kind.what()+", from \"offpath keygen\"")
	flags.AddSecret(s, &k.seed, string(kind)+"-signing-key", "that key, if it is not in a file")
}

// Opened is what keys are good for.
type Opened struct {
	// Verifier is nil if nothing is signed.
	Verifier *signature.Verifier
	// Key gives the signing key of the moment; nil if there is none.
	Key func() *signature.Key
}

// Open reads the key's file, which files watches. A signing key without public keys trusts itself
// alone.
func (k *Keys) Open(kind Kind, files *tlsfiles.Files, log *slog.Logger) (o Opened, err error) {
	if k.file != "" && k.seed != "" {
		return o, flags.Usagef("--%s-signing-key-file, and a key in the environment: want one of them", kind)
	}
	var public []string
	if k.public != "" {
		if public, err = signature.ParsePublicKeys(k.public); err != nil {
			return o, err
		}
	}
	check := func(content []byte) (time.Time, error) {
		key, err := signature.ParseKey(content)
		if err != nil {
			return time.Time{}, err
		}
		if public == nil {
			public = []string{key.Public()}
		}
		if !slices.Contains(public, key.Public()) {
			return time.Time{}, fmt.Errorf("its public key, %s, is not among --%s-public-keys", key.Public(), kind)
		}
		return time.Time{}, nil
	}
	content := func() []byte { return []byte(k.seed) }
	switch {
	case k.file != "":
		if content, err = files.Text(string(kind)+"-signing-key", k.file, check); err != nil {
			return o, fmt.Errorf("--%s-signing-key-file: %w", kind, err)
		}
	case k.seed != "":
		if _, err = check(content()); err != nil {
			return o, fmt.Errorf("the %s' signing key in the environment: %w", kind, err)
		}
	}
	if k.file != "" || k.seed != "" {
		o.Key = func() *signature.Key {
			key, _ := signature.ParseKey(content()) // a good one: it was checked
			return key
		}
	}
	if public != nil {
		o.Verifier, err = signature.NewVerifier(log, public...)
	}
	return o, err
}

// Generate makes a key up, which is trusted alone.
func Generate(log *slog.Logger) (Opened, error) {
	key, err := signature.NewKey()
	if err != nil {
		return Opened{}, err
	}
	v, err := signature.NewVerifier(log, key.Public())
	return Opened{v, func() *signature.Key { return key }}, err
}

// Once is Open for a command that is soon over. On standard error it warns of a key that every user
// of the machine can read.
func (k *Keys) Once(kind Kind) (Opened, error) {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	return k.Open(kind, tlsfiles.New(log), log)
}

// Warn says what is taken unsigned. Nil are kinds that the daemon does not read.
func Warn(log *slog.Logger, rules, entries *signature.Verifier, readsRules bool) {
	var open []string
	if readsRules && rules == nil {
		open = append(open, "rules")
	}
	if entries == nil {
		open = append(open, "blocks")
	}
	if len(open) > 0 {
		log.Warn("UNSIGNED "+strings.Join(open, " and ")+" are taken from NATS: "+
			"whoever can write there decides who is limited and who is kept out",
			"see", "--rules-public-keys, --entries-public-keys, and SECURITY.md")
	}
}

var refusalsDesc = prometheus.NewDesc("offpath_signature_refusals_total",
	"Values in the NATS buckets of rules and of blocks (entries) that changed nothing, since no trusted key has signed them.",
	[]string{"bucket"}, nil)

// Metrics tells Prometheus of refusals; verifiers may be nil.
type Metrics struct{ Rules, Entries *signature.Verifier }

// Describe sends the description.
func (m Metrics) Describe(descs chan<- *prometheus.Desc) { descs <- refusalsDesc }

// Collect sends one snapshot.
func (m Metrics) Collect(out chan<- prometheus.Metric) {
	for kind, v := range map[Kind]*signature.Verifier{Rules: m.Rules, Entries: m.Entries} {
		n := int64(0)
		if v != nil {
			n = v.Refusals()
		}
		out <- prometheus.MustNewConstMetric(refusalsDesc, prometheus.CounterValue, float64(n), string(kind))
	}
}
