package signing

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/signaturetest"
	"github.com/offpath-io/offpath/internal/tlsfiles"
)

var must = daemontest.Must

// TestASigningKeyIsChangedWhileItRuns, for one whose public key is trusted here, and for no other:
// nobody could take what that signs.
func TestASigningKeyIsChangedWhileItRuns(t *testing.T) {
	var seeds, public []string
	for range 3 {
		key := signaturetest.NewKey(t)
		seed, err := key.Seed()
		must(t, err)
		seeds, public = append(seeds, seed), append(public, key.Public())
	}
	path := filepath.Join(t.TempDir(), "key")
	write := func(text string) {
		must(t, os.WriteFile(path+"~", []byte(text+"\n"), 0o600))
		must(t, os.Rename(path+"~", path)) // never half of it
	}
	write(seeds[0])
	var k Keys
	s := pflag.NewFlagSet("x", pflag.ContinueOnError)
	k.AddPublic(s, Entries)
	k.AddSigning(s, Entries)
	must(t, s.Parse([]string{"--entries-public-keys", public[0] + "," + public[1], "--entries-signing-key-file", path}))
	files := tlsfiles.New(slog.New(slog.DiscardHandler))
	opened, err := k.Open(Entries, files, slog.New(slog.DiscardHandler))
	must(t, err)
	daemontest.Background(t, files.Run)
	write(seeds[1])
	daemontest.Eventually(t, "it signs with the other key", func() bool { return opened.Key().Public() == public[1] })
	write(seeds[2])
	daemontest.Eventually(t, "the third is refused", func() bool { return files.States()[0].Refusals > 0 })
	why := files.States()[0].Trouble
	if opened.Key().Public() != public[1] || why == nil || !strings.Contains(why.Error(), public[2]) || strings.Contains(why.Error(), seeds[2]) {
		t.Errorf("it signs with %s: %v", opened.Key().Public(), why)
	}
}

// TestASigningKeyAloneTrustsItself: who signs takes what is signed by that key, and by no other;
// who has no keys takes everything.
func TestASigningKeyAloneTrustsItself(t *testing.T) {
	key := signaturetest.NewKey(t)
	seed, err := key.Seed()
	must(t, err)
	k := Keys{seed: seed}
	opened, err := k.Once(Rules)
	if err != nil || !opened.Verifier.Trusts(key.Public()) || opened.Key().Public() != key.Public() {
		t.Errorf("%+v, %v", opened, err)
	}
	if opened, err := new(Keys).Once(Rules); err != nil || opened.Verifier != nil || opened.Key != nil {
		t.Errorf("%+v, %v", opened, err)
	}
	if _, err := (&Keys{seed: "geheim"}).Once(Rules); err == nil || strings.Contains(err.Error(), "geheim") {
		t.Errorf("%v", err)
	}
}
