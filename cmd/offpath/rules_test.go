package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/offpath-io/offpath/deploy"
	"github.com/offpath-io/offpath/internal/natssource"
	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/servers"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
	"github.com/offpath-io/offpath/pkg/rules"
)

const twoRules = `# who may do how much
rules:
  # everybody
  - name: per-user
    key: [user]
    limit: 15/second # not more
  - name: create
    match: {api: "createURL"}
    key: [user, api]
    limit: 100/hour
    buckets: 60
`

// shell runs "offpath rules" commands on one bucket.
type shell struct {
	t    *testing.T
	nats string
}

// try runs a command, and returns its status and what it has printed.
func (s shell) try(args ...string) (status int, stdout, stderr string) {
	s.t.Helper()
	if args[0] != "validate" && args[0] != "schema" {
		args = append(args, "--nats", s.nats)
	}
	return daemontest.Run(s.t, run, nil, append([]string{"rules"}, args...)...)
}

// do runs a command that must succeed.
func (s shell) do(args ...string) string {
	s.t.Helper()
	status, stdout, stderr := s.try(args...)
	if status != 0 || stderr != "" {
		s.t.Fatalf("%q: status %d, stderr %q", args, status, stderr)
	}
	return stdout
}

// prints runs a command that must succeed, and print this.
func (s shell) prints(want string, args ...string) {
	s.t.Helper()
	equal(s.t, args, s.do(args...), want)
}

// begins runs a command that must succeed, and print this first.
func (s shell) begins(want string, args ...string) {
	s.t.Helper()
	if got := s.do(args...); !strings.HasPrefix(got, want) {
		s.t.Errorf("%q: got %q, want %q…", args, got, want)
	}
}

// fails runs a command that must fail, with words in its error.
func (s shell) fails(words string, args ...string) {
	s.t.Helper()
	status, stdout, stderr := s.try(args...)
	if status != 1 || !strings.Contains(stderr, words) || stdout != "" {
		s.t.Errorf("%q: status %d, want 1 and %q\nstdout %q\nstderr %q", args, status, words, stdout, stderr)
	}
}

// refused is fails for a command that must leave the bucket as it is.
func (s shell) refused(words string, args ...string) {
	s.t.Helper()
	_, before, _ := s.try("history")
	s.fails(words, args...)
	if _, after, _ := s.try("history"); after != before {
		s.t.Errorf("%q has changed something:\n%s\n%s", args, before, after)
	}
}

func file(t *testing.T, text string) string { return daemontest.File(t, "rules.yaml", text) }

// TestRulesFromFirstToLast is a set's life, in the words of an operator.
func TestRulesFromFirstToLast(t *testing.T) {
	s := shell{t, serverstest.JetStream(t).URL()}
	first := file(t, twoRules)
	const (
		everybody = "per-user  key: [user], limit: 15/second\n"
		creating  = "create  match: {api: createURL}, key: [user, api], limit: 100/hour"
		added     = "+ " + everybody + "+ " + creating + ", buckets: 60\n"
	)
	for _, command := range []string{"get", "list", "history"} {
		s.refused("the bucket does not exist yet", command)
	}
	s.refused("there are no rules", "delete", "per-user")

	s.prints("would write 2 rules; nothing is there\n"+added, "apply", "-f", first, "--dry-run")
	s.refused("the bucket does not exist yet", "get") // a rehearsal makes no bucket
	s.prints(added, "diff", "--file", first)
	s.prints("revision 1: 2 rules; nothing was there before\n"+added, "apply", "-f", first, "--revision", "0")
	s.prints(twoRules, "get")
	s.prints("revision 1 is already this set\nno rule changes\n", "apply", "-f", first)
	want := everybody + "create    match: {api: createURL}, key: [user, api], limit: 100/hour, buckets: 60\n"
	s.prints(want, "list")

	second := file(t, strings.Replace(strings.Replace(twoRules, "15/second", "10/second", 1), "    buckets: 60\n", "", 1))
	changes := "~ per-user\n    limit: 15/second -> 10/second\n~ create\n    buckets: 60 -> (default)\n"
	s.prints(changes, "diff", "-f", second)
	s.refused("revision 5 was expected to be there, and revision 1 is", "apply", "-f", second, "--revision", "5")
	s.refused("no set was expected to be there, and revision 1 is", "apply", "-f", second, "--revision", "0")
	s.refused("revision 5 was expected", "apply", "-f", second, "--revision", "5", "--dry-run")
	s.refused("revision 5 was expected", "delete", "create", "--revision", "5")
	s.prints("revision 2: 2 rules; revision 1 was there before\n"+changes, "apply", "-f", second, "--revision", "1")
	s.prints(twoRules, "get", "--revision", "1")
	s.refused("there are no rules", "get", "--revision", "9")

	s.refused(`rule "no": there is no such rule`, "delete", "create", "no")
	s.refused(`rule "create": there is no such rule`, "delete", "create", "create")
	s.refused("there are no rules", "delete", "create", "per-user")
	s.prints("would write 1 rule; revision 2 is there\n- "+creating+"\n", "delete", "create", "--dry-run")
	s.prints("revision 3: 1 rule; revision 2 was there before\n- "+creating+"\n", "delete", "create")
	for _, comment := range []string{"# who may", "# everybody", "# not more"} {
		if got := s.do("get"); !strings.Contains(got, comment) {
			t.Errorf("%q is lost:\n%s", comment, got)
		}
	}
	if lines := strings.Split(strings.TrimSpace(s.do("history")), "\n"); len(lines) != 4 || !strings.Contains(lines[2], fmt.Sprint(len(twoRules)-16)) {
		t.Errorf("history:\n%s", strings.Join(lines, "\n"))
	}
}

// TestRulesAsJSON: every command's JSON, which programs read.
func TestRulesAsJSON(t *testing.T) {
	s := shell{t, serverstest.JetStream(t).URL()}
	const (
		digest = `"digest":"d7d51f7f6fd8"`
		added  = `"changes":[{"rule":"per-user","what":"added","fields":[{"field":"key","old":"","new":"[user]"},` +
			`{"field":"limit","old":"","new":"15/second"}]},{"rule":"create","what":"added","fields":[` +
			`{"field":"match","old":"","new":"{api: createURL}"},{"field":"key","old":"","new":"[user, api]"},` +
			`{"field":"limit","old":"","new":"100/hour"},{"field":"buckets","old":"","new":"60"}]}]}`
		first = `{"revision":1,"created":"…","size":214,` + digest
	)
	text, err := json.Marshal(twoRules)
	must(t, err)
	path, other := file(t, twoRules), file(t, strings.Replace(twoRules, "15/second", "10/second", 1))
	created := regexp.MustCompile(`"created":"20\d\d-[^"]+Z"`)
	for _, step := range []struct{ args, want string }{
		{"apply --dry-run -f " + path, `{"revision":0,"was":0,` + digest + `,"rules":2,"dry_run":true,` + added},
		{"apply -f " + path, `{"revision":1,"was":0,` + digest + `,"rules":2,"dry_run":false,` + added},
		{"get", first + `,"text":` + string(text) + `}`},
		{"list", first + `,"rules":[{"key":["user"],"limit":"15/second","name":"per-user"},` +
			`{"buckets":60,"key":["user","api"],"limit":"100/hour","match":{"api":"createURL"},"name":"create"}]}`},
		{"diff -f " + other, `{"changes":[{"rule":"per-user","what":"changed",` +
			`"fields":[{"field":"limit","old":"15/second","new":"10/second"}]}],"revision":1}`},
		{"delete per-user", `{"revision":2,"was":1,"digest":"d4dc7d1faa2d","rules":1,"dry_run":false,"changes":[{"rule":"per-user",` +
			`"what":"removed","fields":[{"field":"key","old":"[user]","new":""},{"field":"limit","old":"15/second","new":""}]}]}`},
		{"history", `{"revisions":[` + first + `},{"revision":2,"created":"…","size":133,"digest":"d4dc7d1faa2d"}]}`},
		{"validate " + path, `{` + digest + `,"rules":2,"size":214,"valid":true}`},
	} {
		got := created.ReplaceAllString(s.do(append(strings.Fields(step.args), "--json")...), `"created":"…"`)
		equal(t, step.args, got, step.want+"\n")
	}
	status, stdout, stderr := s.try("validate", file(t, strings.Replace(twoRules, "15/second", "15/fortnight", 1)), "--json")
	refused := regexp.MustCompile(`^{"column":12,"file":"[^"]+","line":6,"reason":"limit: .*","valid":false}\n$`)
	if status != 1 || !refused.MatchString(stdout) || stderr != "" {
		t.Errorf("validate: %d %s %s", status, stdout, stderr)
	}
	bad := file(t, "rules:\n- {name: a, limits: 1/s}\n")
	_, stdout, _ = s.try("validate", bad, "--json")
	equal(t, "all mistakes", strings.ReplaceAll(stdout, bad, "FILE"),
		`{"column":3,"file":"FILE","line":2,"more":[{"column":13,"file":"FILE","line":2,`+
			`"reason":"unknown field \"limits\": did you mean \"limit\"?"}],`+
			`"reason":"key: is missing: write key: [user], for example, or key: [] for one counter for all","valid":false}`+"\n")
}

// TestBadRulesAreRefused, by each command that reads a file, with the file, the place and the
// reason.
func TestBadRulesAreRefused(t *testing.T) {
	s := shell{t, serverstest.JetStream(t).URL()}
	s.do("apply", "-f", file(t, twoRules))
	for why, test := range map[string]struct{ text, want string }{
		"a unit nobody knows": {strings.Replace(twoRules, "15/second", "15/fortnight", 1), ":6:12: limit:"},
		"no YAML":             {"rules: [", ":1:"},
		"nothing":             {"", ":1:1: is empty"},
		"no text":             {"rules:\n  \xff", ":2:3: byte 0xff is not UTF-8"},
	} {
		path := file(t, test.text)
		for _, command := range []string{"apply", "diff"} {
			t.Run(why+"/"+command, func(t *testing.T) { shell{t, s.nats}.fails(path+test.want, command, "-f", path) })
		}
	}
	s.refused("no such file", "apply", "-f", filepath.Join(t.TempDir(), "none.yaml"))
	long := file(t, twoRules+"#"+strings.Repeat("x", natssource.MaxSize))
	s.refused("too large", "apply", "-f", long)
	s.refused("too large", "apply", "-f", long, "--dry-run")
	s.prints(twoRules, "get", "--revision", "1")
	s.refused("there are no rules", "get", "--revision", "2")
}

// TestABadSetInTheBucket, which another tool has put there, can be seen and replaced.
func TestABadSetInTheBucket(t *testing.T) {
	s := shell{t, serverstest.JetStream(t).URL()}
	bucket, err := natssource.New(serverstest.Connect(t, s.nats), "offpath", natssource.Options{})
	must(t, err)
	_, err = bucket.Put(t.Context(), []byte("rules: none"), 0)
	must(t, err)
	s.prints("rules: none", "get")
	for _, args := range [][]string{{"list"}, {"delete", "a"}, {"diff", "-f", file(t, twoRules)}} {
		s.refused("revision 1 is not a good set: line 1, column 8: rules:", args...)
	}
	s.begins("revision 2: 2 rules; revision 1 was there before\n+ per-user ", "apply", "-f", file(t, twoRules))
}

// TestRulesOfAnOlderBucket: who may write rules, and not change their bucket, which an older
// version has made, writes them all the same.
func TestRulesOfAnOlderBucket(t *testing.T) {
	write := &server.SubjectPermission{Deny: []string{"$JS.API.STREAM.UPDATE.>"}}
	n := serverstest.NATSWith(t, servers.NATSOptions{JetStream: true, Configure: func(o *server.Options) {
		o.Users = []*server.User{
			{Username: "all", Password: "pw"},
			{Username: "writes", Password: "pw", Permissions: &server.Permissions{Publish: write}},
		}
	}})
	as := func(user string) string { return strings.Replace(n.URL(), "//", "//"+user+":pw@", 1) }
	js := serverstest.JetStreamOf(t, serverstest.Connect(t, as("all")))
	_, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "offpath-rules", History: 64})
	must(t, err)
	shell{t, as("writes")}.do("apply", "-f", file(t, twoRules))
}

// TestEnvoysFormat is taken as it is: applied, given back, compared, listed in the words of
// offpath. Only to take rules out of it is beyond these commands.
func TestEnvoysFormat(t *testing.T) {
	const (
		text  = "domain: shop\ndescriptors:\n  - key: user\n    rate_limit: {unit: minute, requests_per_unit: 30}\n"
		other = "domain: shop\ndescriptors:\n  - key: user\n    rate_limit: {unit: minute, requests_per_unit: 20}\n"
	)
	s := shell{t, serverstest.JetStream(t).URL()}
	s.begins("revision 1: 1 rule; ", "apply", "-f", file(t, text))
	s.prints(text, "get")
	var list struct{ Rules []map[string]any }
	must(t, json.Unmarshal([]byte(s.do("list", "--json")), &list))
	if len(list.Rules) != 1 || list.Rules[0]["limit"] != "30/minute" || list.Rules[0]["algorithm"] != "fixed_window" {
		t.Errorf("list: %v", list.Rules)
	}
	if got := s.do("diff", "-f", file(t, other)); !strings.Contains(got, "limit: 30/minute -> 20/minute\n") {
		t.Errorf("diff: %q", got)
	}
	s.refused("not in offpath's own format", "delete", fmt.Sprint(list.Rules[0]["name"]))
	s.refused(":4:", "apply", "-f", file(t, strings.Replace(text, "minute", "fortnight", 1)))
}

// TestRulesFromStandardInput: "-f -".
func TestRulesFromStandardInput(t *testing.T) {
	s := shell{t, serverstest.JetStream(t).URL()}
	stdin := func(text string) {
		t.Helper()
		f, err := os.Open(file(t, text))
		must(t, err)
		was := os.Stdin
		os.Stdin = f
		t.Cleanup(func() { os.Stdin = was; _ = f.Close() })
	}
	stdin(twoRules)
	s.do("apply", "-f", "-")
	stdin(s.do("get", "--revision", "1"))
	s.begins("revision 1 is already this set", "apply", "-f", "-")
	stdin("rules:\n  - 5")
	s.refused("standard input:2:5: rule:", "apply", "--file=-")
}

// TestFleetsOfDifferentNames share a NATS, and know nothing of each other's rules.
func TestFleetsOfDifferentNames(t *testing.T) {
	s := shell{t, serverstest.JetStream(t).URL()}
	s.do("apply", "-f", file(t, twoRules), "--namespace", "one")
	s.refused("bucket two-rules", "get", "--namespace", "two")
	s.do("get", "--namespace", "one")
}

func TestRulesWithoutNATS(t *testing.T) {
	server := serverstest.NATS(t)
	s := shell{t, server.URL()}
	s.refused("JetStream", "get")
	s.refused("JetStream", "apply", "-f", file(t, twoRules))
	must(t, server.Stop())
	s.refused("connect to "+server.URL(), "get")
	path := file(t, twoRules)
	s.prints(path+": 2 rules, valid\n", "validate", path)
}

// FuzzWithout takes the first rule out of whatever is a set of several: what is left is a set of
// the others, unchanged, unless one of them names the one that is gone.
func FuzzWithout(f *testing.F) {
	f.Add(string(deploy.Rules))
	f.Add(twoRules)
	f.Add(`{"rules": [{"name": "a", "key": ["x"], "limit": "1/s"}, {"name": "\u00e9'\"", "match": {"y": "# no: comment"}, "key": ["- "], "limit": "2/h"}]}`)
	f.Add("rules:\n- name: a\n  key: [x]\n  limit: 1/s\n# of b\n- name: 'b'\n  match: {p: \"a\\tb\", q: ''}\n  key: [x]\n  limit: 3/d\n")
	f.Fuzz(func(t *testing.T, text string) {
		set, err := parseRules([]byte(text))
		if err != nil || len(set.Rules()) < 2 {
			return
		}
		gone := set.Rules()[0].Name
		rest, err := without(set.text, []string{gone})
		must(t, err)
		left, err := parseRules(rest)
		if err != nil {
			if strings.Contains(err.Error(), fmt.Sprintf("%q", gone)) {
				return
			}
			t.Fatalf("%v\n%s", err, rest)
		}
		changes := rules.Diff(set.Set, left.Set)
		if len(changes) != 1 || changes[0].Kind != rules.Removed || changes[0].Name != gone {
			t.Errorf("without %q: %v\n%s", gone, changes, rest)
		}
	})
}
