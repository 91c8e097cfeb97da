package tlsfiles

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/tlsfilestest"
)

// TestBadFiles: each is an error that says which file, and what of it, and never what is in it.
func TestBadFiles(t *testing.T) {
	const canary = "CANARY"
	ca, other := tlsfilestest.NewAuthority(t, "authority"), tlsfilestest.NewAuthority(t, "other")
	good, theirs, dir := ca.Dir("good"), other.Dir("theirs"), t.TempDir()
	_, key := ca.Issue("x")
	file := func(name, content string) string { return daemontest.File(t, name, content) }
	text, empty := file("text", canary), file("empty", "")
	half := file("half", string(ca.PEM())+string(ca.PEM()[:100]))
	keyAsCA, badDER := file("key", string(key)), file("der", "-----BEGIN CERTIFICATE-----\nQ0FOQVJZ\n-----END CERTIFICATE-----\n")
	long, none := file("long", strings.Repeat(canary, 1<<18)), filepath.Join(dir, "none")
	brokenKey := file("broken", strings.Replace(string(key), "M", "N", 3))
	goodCert, err := os.ReadFile(good.Cert)
	must(t, err)
	hole := file("hole", string(ca.PEM()[:100])+"\n"+string(ca.PEM()))
	halfChain := file("chain", string(goodCert)+string(ca.PEM()[:100]))
	lines, line0 := file("lines", canary+"\n"+canary+"\n"), file("newline", "\n")
	client := func(p Paths) func(*Files) error {
		return func(f *Files) error { _, err := f.Client("nats", p); return err }
	}
	server := func(p Paths) func(*Files) error {
		return func(f *Files) error { _, err := f.Server("listen", p); return err }
	}
	secret := func(path string) func(*Files) error {
		return func(f *Files) error { _, err := f.Secret("password", path); return err }
	}
	for _, test := range []struct {
		name string
		add  func(*Files) error
		want []string
	}{
		{"no such authorities", client(Paths{Authorities: none}), []string{none, "no such file"}},
		{"a directory", client(Paths{Authorities: dir}), []string{dir, "is a directory"}},
		{"authorities that are text", client(Paths{Authorities: text}), []string{text, "no certificate in it"}},
		{"half of the authorities", client(Paths{Authorities: half}), []string{half, "1 of its 2 blocks cannot be read"}},
		{"half of the first authority", client(Paths{Authorities: hole}), []string{hole, "1 of its 2 blocks cannot be read"}},
		{"a key for an authority", client(Paths{Authorities: keyAsCA}), []string{keyAsCA, "block 1 is no certificate"}},
		{"authorities that are no certificates", client(Paths{Authorities: badDER}), []string{badDER, "certificate 1"}},
		{"authorities without an end", client(Paths{Authorities: long}), []string{long, "longer than"}},
		{"no key", client(Paths{Cert: good.Cert}), []string{"need each other"}},
		{"no such key", client(Paths{Cert: good.Cert, Key: none}), []string{none, "no such file"}},
		{"another's key", client(Paths{Cert: good.Cert, Key: theirs.Key}), []string{good.Cert, theirs.Key, "does not match"}},
		{"half of those between it and its authority", client(Paths{Cert: halfChain, Key: good.Key}), []string{halfChain, "1 of its 2 blocks cannot be read"}},
		{"a key that is broken", client(Paths{Cert: good.Cert, Key: brokenKey}), []string{brokenKey}},
		{"a key that is text", client(Paths{Cert: good.Cert, Key: text}), []string{text}},
		{"the wrong way round", client(Paths{Cert: good.Key, Key: good.Cert}), []string{good.Key}},
		{"a server without files", server(Paths{}), []string{"needs a certificate"}},
		{"a server with bad authorities", server(Paths{Authorities: text, Cert: good.Cert, Key: good.Key}), []string{text}},
		{"no password", secret(none), []string{none, "no such file"}},
		{"an empty password", secret(empty), []string{empty, "empty"}},
		{"a newline for a password", secret(line0), []string{line0, "empty"}},
		{"two passwords", secret(lines), []string{lines, "want one line"}},
		{"content that is refused", func(f *Files) error {
			_, err := f.Text("creds", text, func([]byte) (time.Time, error) { return time.Time{}, errors.New("no good") })
			return err
		}, []string{text, "no good"}},
	} {
		w := newWorld(t)
		err := test.add(w.files)
		if err == nil {
			t.Errorf("%s: it was taken", test.name)
			continue
		}
		for _, want := range test.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q does not say %q", test.name, err, want)
			}
		}
		if strings.Contains(err.Error()+w.log.String(), canary) {
			t.Errorf("%s: it tells what is in the file: %v", test.name, err)
		}
		if len(w.files.States()) != 0 {
			t.Errorf("%s: it is kept", test.name)
		}
	}
}

func TestNoFilesAreNoConfiguration(t *testing.T) {
	w := newWorld(t)
	current, err := w.files.Client("nats", Paths{})
	if err != nil || current() != nil || len(w.files.States()) != 0 {
		t.Errorf("%v, %v", current(), err)
	}
}

// TestSecret: the end of a line is not part of it; a new one counts once it is there.
func TestSecret(t *testing.T) {
	w, path := newWorld(t), filepath.Join(t.TempDir(), "password")
	for content, want := range map[string]string{"a b": "a b", "a\n": "a", "a\r\n": "a", " a ": " a "} {
		current, err := newWorld(t).files.Secret("password", write(t, path, content))
		if err != nil || current() != want {
			t.Errorf("%q: %q, %v", content, current(), err)
		}
	}
	current, err := w.files.Secret("password", write(t, path, "CANARY1"))
	must(t, err)
	w.run()
	write(t, path, "CANARY2\n")
	w.await("the second is in force", func() bool { return current() == "CANARY2" })
	write(t, path, "CANARY3\nCANARY4")
	w.await("two lines are refused", func() bool { return w.files.States()[0].Trouble != nil })
	if current() != "CANARY2" || strings.Contains(w.log.String()+w.files.States()[0].Trouble.Error(), "CANARY") {
		t.Errorf("%s in force; log:\n%s", current(), &w.log)
	}
}

// TestExpired: what has expired does not replace what has not, as from an old backup; but a daemon
// starts with it, and says so.
func TestExpired(t *testing.T) {
	ca, w := tlsfilestest.NewAuthority(t, "authority"), newWorld(t)
	f := ca.Dir("good")
	writeUntil := func(name string, expires time.Time) {
		cert, key := ca.IssueUntil(name, expires)
		tlsfilestest.Write(t, f.Cert, cert)
		tlsfilestest.Write(t, f.Key, key)
	}
	config, err := w.files.Client("nats", Paths{Cert: f.Cert, Key: f.Key})
	must(t, err)
	before := config()
	w.run()
	writeUntil("old", time.Now().Add(-time.Hour))
	w.await("it is refused", func() bool {
		s := w.files.States()[0]
		return s.Trouble != nil && strings.Contains(s.Trouble.Error(), "expired")
	})
	if config() != before {
		t.Error("it is in force")
	}
	soon := time.Now().Add(time.Hour)
	writeUntil("new", soon)
	w.await("a good one is in force", func() bool { s := w.files.States()[0]; return s.Trouble == nil && s.Expires.Unix() == soon.Unix() })
	w.await("it says that this expires soon", func() bool { return strings.Contains(w.log.String(), "expires soon") })

	writeUntil("old", time.Now().Add(-time.Hour))
	again := newWorld(t)
	if _, err := again.files.Client("nats", Paths{Cert: f.Cert, Key: f.Key}); err != nil || !strings.Contains(again.log.String(), "has expired") {
		t.Errorf("%v; log:\n%s", err, &again.log)
	}
}

// TestOpenSecrets: who lets everybody read a key or a password is told so, at the start and when it
// is written anew; a certificate is for everybody.
func TestOpenSecrets(t *testing.T) {
	const warning = "every user of this machine"
	ca := tlsfilestest.NewAuthority(t, "authority")
	for _, test := range []struct {
		cert, key os.FileMode
		want      int
	}{{0o600, 0o400, 0}, {0o644, 0o440, 0}, {0o644, 0o644, 1}, {0o600, 0o602, 1}} {
		f, w := ca.Dir("x"), newWorld(t)
		must(t, errors.Join(os.Chmod(f.Cert, test.cert), os.Chmod(f.Key, test.key)))
		_, err := w.files.Client("nats", Paths{Cert: f.Cert, Key: f.Key})
		must(t, err)
		if got := strings.Count(w.log.String(), warning); got != test.want {
			t.Errorf("%+v: %d warnings:\n%s", test, got, &w.log)
		}
	}
	path, w := filepath.Join(t.TempDir(), "password"), newWorld(t)
	_, err := w.files.Secret("password", write(t, path, "first"))
	must(t, err)
	w.run()
	must(t, errors.Join(os.WriteFile(path+".new", []byte("second"), 0o600), os.Chmod(path+".new", 0o604), os.Rename(path+".new", path)))
	w.await("it is told", func() bool { return strings.Contains(w.log.String(), warning) })
}
