package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
	"github.com/offpath-io/offpath/pkg/signature"
)

// keygen makes a key in a file by the command, and returns the path and the public key.
func keygen(t *testing.T) (path, public string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "seed")
	status, stdout, stderr := daemontest.Run(t, run, nil, "keygen", path)
	if status != 0 || stderr != "" {
		t.Fatalf("keygen: status %d, %s", status, stderr)
	}
	return path, strings.TrimSpace(stdout)
}

// TestKeygen: a key's file is for its owner alone, and is never written over; what is printed is
// what is in it.
func TestKeygen(t *testing.T) {
	path, public := keygen(t)
	info, err := os.Stat(path)
	must(t, err)
	seed, err := os.ReadFile(path)
	must(t, err)
	if key, err := signature.ParseKey(seed); err != nil || key.Public() != public || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v, mode %v", key, err, info.Mode())
	}
	ends(t, nil, []string{"keygen", path}, 1, "exists")
	if again, err := os.ReadFile(path); err != nil || string(again) != string(seed) {
		t.Error("the key is another one")
	}
	status, stdout, _ := daemontest.Run(t, run, nil, "keygen")
	lines := strings.Fields(stdout)
	if key, err := signature.ParseKey([]byte(stdout)); status != 0 || err != nil || len(lines) != 2 || key.Public() != lines[1] {
		t.Errorf("status %d, %v", status, err)
	}
	var made struct{ Key, Public string }
	status, stdout, _ = daemontest.Run(t, run, nil, "keygen", "--json")
	must(t, json.Unmarshal([]byte(stdout), &made))
	if key, err := signature.ParseKey([]byte(made.Key)); status != 0 || err != nil || key.Public() != made.Public {
		t.Errorf("status %d, %v", status, err)
	}
}

// TestSignedRulesFromFirstToLast is the life of a set that is signed, in the words of an operator.
func TestSignedRulesFromFirstToLast(t *testing.T) {
	s := shell{t, serverstest.JetStream(t).URL()}
	key, public := keygen(t)
	next, nextPublic := keygen(t)
	first, second := file(t, twoRules), file(t, strings.Replace(twoRules, "15/second", "10/second", 1))
	signed := func(args ...string) []string { return append(args, "--rules-signing-key-file", key) }
	s.refused("there is no signing key", "apply", "-f", second, "--rules-public-keys", public)
	s.do("apply", "-f", second)
	s.do(signed("apply", "-f", first)...) // whatever was there before was not signed
	s.refused("signed: --rules-signing-key-file FILE is needed", "apply", "-f", second)
	s.refused("signed: --rules-signing-key-file FILE is needed", "delete", "create")
	s.refused("is not among --rules-public-keys", signed("apply", "-f", second, "--rules-public-keys", nextPublic)...)
	s.prints("revision 2 is already this set\nno rule changes\n", signed("apply", "-f", first)...)
	s.prints(twoRules, "get")
	s.prints(twoRules, "get", "--rules-public-keys", public)
	s.fails("refused: it is not signed", "get", "--revision", "1", "--rules-public-keys", public)
	s.fails("there are no rules", "get", "--rules-public-keys", nextPublic)
	s.begins("revision 3: 1 rule; revision 2 was there before\n", signed("delete", "create")...)
	s.do(signed("apply", "-f", file(t, s.do("get", "--revision", "2", "--rules-public-keys", public)))...) // back again
	s.prints("no rule changes\n", "diff", "-f", first, "--rules-public-keys", public)

	// Another key signs what is there anew.
	both := public + "," + nextPublic
	s.prints("revision 5: 2 rules; revision 4 was there before\nno rule changes\n",
		"apply", "-f", first, "--rules-signing-key-file", next, "--rules-public-keys", both)
	s.prints(twoRules, "get", "--rules-public-keys", nextPublic)
	history := s.do("history", "--rules-public-keys", public)
	lines := strings.Split(strings.TrimSpace(history), "\n")
	for i, want := range []string{"digest", "not signed", "", "", "", "not trusted"} {
		if strings.Contains(lines[i], "refused") != strings.HasPrefix(want, "not") || !strings.Contains(lines[i], want) {
			t.Errorf("line %d of %s", i, history)
		}
	}
	if got := s.do("history", "--json"); strings.Count(got, `"signed_by":"`+public) != 3 || strings.Count(got, `"signed_by":"`+nextPublic) != 1 {
		t.Error(got)
	}
	for _, secret := range []string{key, next} {
		seed, err := os.ReadFile(secret)
		must(t, err)
		if strings.Contains(s.do("history", "--json")+s.do("get"), strings.TrimSpace(string(seed))) {
			t.Error("a signing key is shown")
		}
	}
}

// TestSignedBlocks: a command with the key blocks and unblocks where no aggregator is there to ask,
// and one without cannot where there are keys.
func TestSignedBlocks(t *testing.T) {
	url := serverstest.JetStream(t).URL()
	key, public := keygen(t)
	blocks := func(want int, words string, args ...string) {
		t.Helper()
		ends(t, nil, append(args, "k", "--rule", "r", "--nats", url), want, words)
	}
	blocks(0, "k of r is blocked until", "block", "--entries-signing-key-file", key)
	blocks(1, "there is no signing key", "block", "--entries-public-keys", public)
	blocks(1, "there is no signing key", "unblock", "--entries-public-keys", public)
	blocks(0, "k of r is not blocked any more", "unblock", "--entries-signing-key-file", key)
	blocks(1, "k of r is not blocked", "unblock", "--entries-signing-key-file", key)
}
