package redisstore

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
)

// sentinel answers as a Sentinel does that takes a server for the master, after a time. It knows no
// other Sentinels.
func sentinel(t *testing.T, master string, after time.Duration) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	noError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	host, port, err := net.SplitHostPort(master)
	noError(t, err)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				for from := bufio.NewReader(conn); ; {
					words, err := command(from)
					if err != nil {
						return
					}
					time.Sleep(after)
					switch what := strings.ToLower(strings.Join(words, " ") + " "); {
					case strings.HasPrefix(what, "info "):
						const info = "redis_version:7.0.0"
						fmt.Fprintf(conn, "$%d\r\n%s\r\n", len(info), info)
					case strings.HasPrefix(what, "sentinel get-master-addr-by-name "):
						fmt.Fprintf(conn, "*2\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", len(host), host, len(port), port)
					case strings.HasPrefix(what, "sentinel sentinels "):
						fmt.Fprint(conn, "*0\r\n")
					default:
						fmt.Fprint(conn, "-ERR unknown command\r\n")
					}
				}
			}()
		}
	}()
	return listener.Addr().String()
}

// command reads a command in Redis' protocol.
func command(from *bufio.Reader) (words []string, err error) {
	var n, length int
	if _, err := fmt.Fscanf(from, "*%d\r\n", &n); err != nil {
		return nil, err
	}
	for range n {
		if _, err := fmt.Fscanf(from, "$%d\r\n", &length); err != nil {
			return nil, err
		}
		word := make([]byte, length+len("\r\n"))
		if _, err := io.ReadFull(from, word); err != nil {
			return nil, err
		}
		words = append(words, string(word[:length]))
	}
	return words, nil
}

// A Sentinel that names a replica, or a node that is away, always before others have answered, does
// not keep a store from its master.
func TestASentinelIsWrong(t *testing.T) {
	host, port, err := net.SplitHostPort(server.Addr())
	noError(t, err)
	named := map[string]string{
		"a replica": serverstest.Redis(t, "--replicaof", host+" "+port).Addr(), "a dead node": serverstest.Address(t),
	}
	for what, master := range named {
		empty(t)
		wrong := sentinel(t, master, 0)
		one, other := sentinel(t, server.Addr(), 50*time.Millisecond), sentinel(t, server.Addr(), 50*time.Millisecond)
		s := open(t, Options{URL: "redis://" + one + "," + other + "," + wrong + "?master_name=m"})
		if _, err := s.Join(t.Context(), 0); err == nil {
			t.Errorf("%s is taken for the master", what)
		}
		for n := 1; ; n++ {
			_, err := s.Join(t.Context(), 1)
			if err == nil {
				break
			}
			// Each of three is left out once, after two that nobody replied to; and this machine may
			// stand still.
			if n == 20 {
				t.Fatalf("%s is named: %v", what, err)
			}
		}
		noError(t, s.Close())
		if _, err := s.Join(t.Context(), 1); err == nil {
			t.Error("a closed store goes on")
		}
	}
}

// What the server replies is no reason to doubt a Sentinel, and nor is one call without a reply.
func TestDoubts(t *testing.T) {
	var s sentinels
	for i, step := range []struct {
		err  error
		want bool
	}{{io.EOF, false}, {redis.Nil, false}, {io.EOF, false}, {nil, false}, {io.EOF, false}, {io.EOF, true}, {errReplica, true}} {
		if got := s.mislead(step.err); got != step.want {
			t.Errorf("step %d, %v: %v", i, step.err, got)
		}
	}
}
