package servers_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/offpath-io/offpath/internal/testing/servers"
)

// holderEnv makes this test binary start a redis-server, say where, and wait to be killed.
const holderEnv = "OFFPATH_TEST_HOLDS_REDIS"

func TestMain(m *testing.M) {
	if os.Getenv(holderEnv) != "" {
		holdRedis()
	}
	os.Exit(m.Run())
}

func holdRedis() {
	r, err := servers.StartRedis(context.Background(), servers.RedisOptions{})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(r.Addr())
	select {}
}

func TestRedisDiesWithItsParent(t *testing.T) {
	holder := exec.Command(os.Args[0])
	holder.Env = append(os.Environ(), holderEnv+"=1", "TMPDIR="+t.TempDir())
	out, err := holder.StdoutPipe()
	must(t, err)
	must(t, holder.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	addr := strings.TrimSpace(line)
	require(t, err == nil && !refuses(addr), "the holder of redis says %q, %v", line, err)
	must(t, holder.Process.Kill())
	_ = holder.Wait() // killed, as asked

	for end := time.Now().Add(time.Minute); !refuses(addr); time.Sleep(10 * time.Millisecond) {
		require(t, !time.Now().After(end), "redis-server outlives the process that started it")
	}
}

// A child must live as long as it is wanted, whatever happens to the goroutine that started it: the
// parent-death signal is tied to a thread, and Go ends the thread of a goroutine that returns while
// locked to it.
func TestRedisOutlivesTheGoroutineThatStartedIt(t *testing.T) {
	started := make(chan *servers.Redis)
	go func() {
		runtime.LockOSThread()
		defer close(started)
		r, err := servers.StartRedis(t.Context(), servers.RedisOptions{})
		if err != nil {
			t.Error(err)
			return
		}
		started <- r
	}()
	r := <-started
	if r == nil {
		t.FailNow()
	}
	defer r.Stop()
	<-started // the goroutine has returned; its thread ends
	for range 100 {
		runtime.Gosched()
		require(t, !refuses(r.Addr()), "redis-server died with a thread")
	}
}
