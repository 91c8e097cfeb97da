package servers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// adminClient returns a client that says what happened instead of trying again: the callers poll,
// and a server that is down on purpose is no news for go-redis's log.
func adminClient(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr:                     addr,
		Protocol:                 2,
		PoolSize:                 1,
		MaxRetries:               -1,
		ContextTimeoutEnabled:    true,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		// The context bounds each asking. A machine that stands still for seconds is no failure of
		// the server's.
		DialTimeout:  readyTimeout,
		ReadTimeout:  readyTimeout,
		WriteTimeout: readyTimeout,
	})
}

// answers reports whether the process with this id answers PING, which it refuses while it loads a
// snapshot. That the answer is not another server's matters only when two processes have raced for
// the port.
func answers(ctx context.Context, client *redis.Client, pid int) (bool, error) {
	// A plain connection first: go-redis would log every refused one.
	conn, err := net.DialTimeout("tcp", client.Options().Addr, answerTimeout)
	if err != nil {
		return false, err
	}
	conn.Close()

	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	if err := client.Ping(ctx).Err(); err != nil {
		return false, err
	}
	info, err := client.Info(ctx, "server").Result()
	if err != nil {
		return false, err
	}
	return infoField(info, "process_id") == strconv.Itoa(pid), nil
}

// infoField returns the value of one line of an INFO text, or "".
func infoField(info, name string) string {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// SaveTo writes a snapshot of the data to a file, which RestartFrom can load. The server stands
// still meanwhile.
func (r *Redis) SaveTo(ctx context.Context, path string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.proc == nil || !r.proc.running() {
		return errors.New("save redis: not running")
	}
	client := adminClient(r.Addr())
	defer client.Close()
	if err := client.Save(ctx).Err(); err != nil {
		return fmt.Errorf("save redis: %w", err)
	}
	if err := copyFile(path, r.snapshot()); err != nil {
		return fmt.Errorf("save redis: %w", err)
	}
	return nil
}

// snapshot is the file that redis-server writes, and loads when it starts.
func (r *Redis) snapshot() string { return filepath.Join(string(r.dir), snapshotName) }

func (r *Redis) forgetSnapshot() error {
	if err := os.Remove(r.snapshot()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove snapshot: %w", err)
	}
	return nil
}

func copyFile(to, from string) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := os.Create(to)
	if err != nil {
		return err
	}
	if _, err := io.Copy(target, source); err != nil {
		target.Close()
		return err
	}
	return target.Close()
}
