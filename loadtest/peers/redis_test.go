package peers

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"github.com/offpath-io/offpath/internal/testing/servers"
)

// redisServer is a real one, with a connection of our own to ask it what it did.
type redisServer struct {
	*servers.Redis
	admin *redis.Client
	asked int64 // how often commands has asked
}

func startRedis(t testing.TB) *redisServer {
	t.Helper()
	r, err := servers.StartRedis(context.Background(), servers.RedisOptions{})
	must(t, err)
	return &redisServer{Redis: r, admin: redis.NewClient(&redis.Options{
		Addr: r.Addr(), PoolSize: 1, MaxRetries: -1, ReadTimeout: patience, // a second try would be another command
	})}
}

func (r *redisServer) close() error { return errors.Join(r.admin.Close(), r.Stop()) }

// commands is how many commands clients have sent, but for HELLO and CLIENT, when they connect, and
// what this asks: the calls of EVALSHA, EVAL and INFO in INFO commandstats. Both limiters work by
// scripts, offpath asks for the memory as well, and what a script does is not sent by anybody
// (total_commands_processed counts it, too). It is for one goroutine.
func (r *redisServer) commands() (all int64, err error) {
	info, err := r.admin.Info(context.Background(), "commandstats").Result()
	if err != nil {
		return 0, fmt.Errorf("ask redis for its statistics: %w", err)
	}
	for line := range strings.Lines(info) {
		for _, command := range []string{"evalsha", "eval", "info"} {
			var calls int64
			if n, _ := fmt.Sscanf(line, "cmdstat_"+command+":calls=%d", &calls); n == 1 {
				all += calls
			}
		}
	}
	all -= r.asked
	r.asked++ // which Redis counts once it has answered
	return all, nil
}

// newRedisRate is redis_rate by the example of its authors, with go-redis' defaults. A connection
// for each caller, instead of 10 for each core, made no difference.
func newRedisRate(t testing.TB, q quota) *subject {
	t.Helper()
	server := startRedis(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	limiter := redis_rate.NewLimiter(client)
	limit := redis_rate.Limit{Rate: int(q.limit), Burst: int(q.limit), Period: q.window}
	ctx := context.Background()
	return &subject{
		decide: func(key string) (bool, error) {
			got, err := limiter.Allow(ctx, key, limit)
			return err == nil && got.Allowed > 0, err
		},
		redis: server,
		close: func(int64) error { return errors.Join(client.Close(), server.close()) },
	}
}

// Redis itself tells, by MONITOR, who runs which command.
func TestCommandsAreThoseThatClientsSend(t *testing.T) {
	for _, l := range networkLimiters {
		t.Run(l.name, func(t *testing.T) {
			s := l.make(t, l.far)
			p := &repeat{subject: s}
			defer func() {
				if err := p.end(); err != nil {
					t.Error(err)
				}
			}()
			hit(t, p, 1)
			must(t, s.redis.admin.ScriptFlush(t.Context()).Err()) // so that EVAL is among them
			log := monitor(t, s.redis.Addr())
			commands := counter(s.redis.commands)
			before := commands.read(t)
			hit(t, p, 100)
			got := commands.read(t) - before
			if want := sentMeanwhile(t, log); got != want || got == 0 {
				t.Errorf("commands grew by %d, Redis saw %d", got, want)
			}
		})
	}
}

func hit(t *testing.T, p *repeat, times int) {
	t.Helper()
	var all tally
	for range times {
		all.count(p.subject.decide("a"))
	}
	must(t, p.took(all))
}

// monitor returns what Redis logs of the commands that it runs from now on.
func monitor(t *testing.T, addr string) *bufio.Reader {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	must(t, conn.SetDeadline(time.Now().Add(patience)))
	_, err = conn.Write([]byte("MONITOR\r\n"))
	must(t, err)
	log := bufio.NewReader(conn)
	_, err = log.ReadString('\n') // that it will
	must(t, err)
	return log
}

// sentMeanwhile counts the commands between two questions for how many there were that no script
// has run, but for HELLO and CLIENT.
func sentMeanwhile(t *testing.T, log *bufio.Reader) (n int64) {
	t.Helper()
	for questions := 0; questions < 2; {
		line, err := log.ReadString('\n')
		must(t, err)
		_, words, _ := strings.Cut(strings.ToLower(strings.TrimSpace(line)), "] ")
		command, _, _ := strings.Cut(words, " ")
		switch {
		case words == `"info" "commandstats"`:
			questions++
		case questions == 0 || strings.Contains(line, " lua] ") || command == `"hello"` || command == `"client"`:
		default:
			n++
		}
	}
	return n
}
