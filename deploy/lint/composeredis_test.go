package lint

import (
	"bytes"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/types"
)

// TestComposeRedis runs what compose.yaml has its Redis start, on another port and in another
// directory: its health check finds it healthy, aggregators' user and people's get in, and nobody
// else does.
func TestComposeRedis(t *testing.T) {
	s := project(t).Services["redis"]
	if got := strings.Join(s.Entrypoint, " "); got != "sh -euc" || len(s.Command) != 1 || s.HealthCheck.Test[0] != "CMD-SHELL" || s.User != "redis" {
		t.Fatalf("%q %q as %q", got, s.HealthCheck.Test, s.User)
	}
	own := environment(s)
	shell, taken := startComposeRedis(t, s, own)
	for try := 1; taken && try < 10; try++ {
		shell, taken = startComposeRedis(t, s, own)
	}
	if taken {
		t.Fatal("no port is free")
	}
	for _, tt := range []struct {
		why, password, command, want string
	}{
		{"the aggregators' user", own["REDIS_PASSWORD"], "redis-cli --user offpath GET offpath:config", "\n"},
		{"no more than its keys", own["REDIS_PASSWORD"], "redis-cli --user offpath GET other", "NOPERM"},
		{"people", own["REDISCLI_AUTH"], "redis-cli --user admin SLOWLOG GET", ""},
		{"people, who make it forget", own["REDISCLI_AUTH"], "redis-cli --user admin FLUSHALL", "OK"},
		{"nobody", "", "redis-cli ping", "NOAUTH"},
		{"a guess", "guess", "redis-cli --user admin ping", "NOAUTH"},
	} {
		got, err := shell(map[string]string{"REDISCLI_AUTH": tt.password}, tt.command).Output()
		if err != nil || !strings.HasPrefix(string(got), tt.want) {
			t.Errorf("%s: %q, %v; want %q", tt.why, got, err, tt.want)
		}
	}
}

// startComposeRedis starts the service's Redis until the test is over, and returns what runs a
// script beside it, once it is healthy; or that its port, which was free a moment ago, has been
// taken by somebody else.
func startComposeRedis(t *testing.T, s types.ServiceConfig, own map[string]string) (
	shell func(env map[string]string, script string) *exec.Cmd, taken bool,
) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	port := strconv.Itoa(listener.Addr().(*net.TCPAddr).Port)
	must(t, listener.Close())
	here := strings.NewReplacer("/etc/offpath/", "../", "/tmp/", t.TempDir()+"/", "/data", t.TempDir(), "exec redis-server /etc/offpath/redis.conf", "exec redis-server ../redis.conf --bind 127.0.0.1 --port "+port,
		"redis-cli ", "redis-cli -p "+port+" ")
	shell = func(env map[string]string, script string) *exec.Cmd {
		c := exec.CommandContext(t.Context(), "sh", "-euc", here.Replace(script))
		c.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/bin"}
		for name, value := range env {
			c.Env = append(c.Env, name+"="+value)
		}
		return c
	}
	redis, ended := shell(own, s.Command[0]), make(chan struct{})
	var out bytes.Buffer // to be read once it has ended
	redis.Stdout, redis.Stderr = &out, &out
	must(t, redis.Start())
	go func() { defer close(ended); _ = redis.Wait() }()
	t.Cleanup(func() { _ = redis.Process.Kill(); <-ended })
	for deadline := time.Now().Add(time.Minute); ; {
		unhealthy := shell(own, s.HealthCheck.Test[1]).Run()
		select {
		case <-ended: // whoever else is there may be healthy
			if strings.Contains(out.String(), "ddress already in use") {
				return nil, true
			}
			t.Fatalf("it ends:\n%s", &out)
		case <-time.After(50 * time.Millisecond):
		}
		if unhealthy == nil {
			return shell, false
		}
		if time.Now().After(deadline) {
			t.Fatalf("it is not healthy: %v", unhealthy)
		}
	}
}
