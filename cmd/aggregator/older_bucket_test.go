package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/servers"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
)

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
	conn, err := nats.Connect(as("all"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err == nil {
		_, err = js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "offpath-rules", History: 64})
	}
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "rules.yaml")
	const one = "rules:\n- {name: a, key: [], limit: 1/s}\n"
	if err := os.WriteFile(path, []byte(one), 0o600); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := daemontest.Run(t, run, nil, "rules", "apply", "-f", path, "--nats", as("writes"))
	if code != 0 {
		t.Errorf("%d %q\n%s", code, stdout, stderr)
	}
}
