package redisstore

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

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

// A Sentinel that names a replica, always before others have answered, does not keep a store from
// its master.
func TestASentinelIsWrong(t *testing.T) {
	empty(t)
	host, port, err := net.SplitHostPort(server.Addr())
	noError(t, err)
	replica := serverstest.Redis(t, "--replicaof", host+" "+port)
	wrong, right := sentinel(t, replica.Addr(), 0), sentinel(t, server.Addr(), 50*time.Millisecond)
	s := open(t, Options{URL: "redis://" + wrong + "," + right + "?master_name=m"})
	if _, err := s.Join(t.Context(), 1); err == nil || !strings.Contains(err.Error(), "READONLY") {
		t.Fatalf("the Sentinel is right: %v", err)
	}
	mustJoin(t, s, 1)
}
