package servers

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"sync"
	"time"
)

const (
	// readyTimeout bounds how long a started server may take until it answers.
	readyTimeout = time.Minute
	// readyPoll is how often it is asked.
	readyPoll = 10 * time.Millisecond
	// answerTimeout bounds each asking, since whoever else has the port may never answer.
	answerTimeout = time.Second
	// stopGrace is how long a redis-server may take to end by itself. It is never long about it,
	// unless the machine stands still: killed then, it would have lost what it was to write down.
	stopGrace = time.Minute
	// snapshotName is the file, in the server's directory, that Redis loads when it starts.
	snapshotName = "dump.rdb"
)

// RedisOptions says what to start. The zero value starts the redis-server found in PATH.
type RedisOptions struct {
	// Args are further arguments, as redis-server takes them: "--maxmemory", "100mb". They may not
	// ask for a password, TLS or another port, since the server must be reachable to know that it
	// is ready.
	Args []string
	// Env are variables of its environment, beside this process' own, as KEY=VALUE.
	Env []string
}

// Redis is a private redis-server that keeps its data in memory only. Its methods may be called
// from any goroutine; those that start or end the process take turns.
type Redis struct {
	binary string
	args   []string
	env    []string
	port   int

	mu   sync.Mutex
	dir  tempDir  // "" once stopped
	proc *process // nil while not running, unless it ended by itself
}

// StartRedis starts a redis-server on a free port of 127.0.0.1 and returns once it answers. The
// context bounds the start, not the server's life. The error names the package to install if there
// is no redis-server, and ends with the last of the server's log if there is one that does not
// start.
func StartRedis(ctx context.Context, options RedisOptions) (*Redis, error) {
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, fmt.Errorf("start redis: %w (install the package redis-server, or redis, 7.0 or newer)", err)
	}
	return onFreePort(func(port int) (*Redis, error) {
		r := &Redis{binary: binary, args: options.Args, env: options.Env, port: port}
		if err := r.start(ctx); err != nil {
			return nil, fmt.Errorf("start redis: %w", errors.Join(err, r.dir.remove()))
		}
		return r, nil
	})
}

// Addr returns the server's address as host:port. It stays the same over restarts.
func (r *Redis) Addr() string { return address(r.port) }

// URL returns the server's address as a redis:// URL.
func (r *Redis) URL() string { return "redis://" + r.Addr() }

// PID returns the process's id, or 0 while the server is not running.
func (r *Redis) PID() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.proc == nil || !r.proc.running() {
		return 0
	}
	return r.proc.pid()
}

// Stop ends the server, by force if it has not ended after a minute, and removes its directory. To
// stop a stopped server is no error. A later Restart starts with nothing; a cluster node does not
// find its cluster again after it, so stop those with Kill if they are to come back.
func (r *Redis) Stop() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := errors.Join(r.end((*process).gentle), r.dir.remove()); err != nil {
		return fmt.Errorf("stop redis: %w", err)
	}
	return nil
}

// Kill ends the server as a crash would. What it held is lost; Restart brings it back.
func (r *Redis) Kill() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.end((*process).kill); err != nil {
		return fmt.Errorf("kill redis: %w", err)
	}
	return nil
}

// Restart kills the server, if it runs, and starts it on the same port with no data. A cluster node
// keeps its place in the cluster. It returns once the server answers; the context bounds that.
func (r *Redis) Restart(ctx context.Context) error {
	return r.restart(ctx, (*process).kill, r.forgetSnapshot)
}

// RestartFrom does what Restart does, but with the data of a snapshot that SaveTo has written:
// Redis as it comes back after it has lost its newest writes.
func (r *Redis) RestartFrom(ctx context.Context, path string) error {
	return r.restart(ctx, (*process).kill, func() error { return copyFile(r.snapshot(), path) })
}

// RestartInOrder ends the server, which has to run, as an operator does: it writes down what it
// holds first. It starts it on the same port with all of that.
func (r *Redis) RestartInOrder(ctx context.Context) error {
	client := adminClient(r.Addr())
	defer client.Close()
	if err := client.ConfigSet(ctx, "shutdown-on-sigterm", "save").Err(); err != nil {
		return fmt.Errorf("restart redis: %w", err)
	}
	return r.restart(ctx, (*process).gentle, func() error { return nil })
}

// restart ends the process by the given means, prepares the data for the next and starts it.
func (r *Redis) restart(ctx context.Context, by func(*process) error, prepare func() error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, step := range []func() error{
		func() error { return r.end(by) },
		r.makeDir,
		prepare,
		func() error { return r.start(ctx) },
	} {
		if err := step(); err != nil {
			return fmt.Errorf("restart redis: %w", err)
		}
	}
	return nil
}

// Pause freezes the server: its connections stay open, nothing is answered, new connections are
// accepted by the kernel only. Kill, Stop and Restart work on a paused server. On a system without
// such signals the error is errors.ErrUnsupported.
func (r *Redis) Pause() error { return r.signal((*process).pause) }

// Resume ends a Pause; the server then answers what came in meanwhile.
func (r *Redis) Resume() error { return r.signal((*process).resume) }

func (r *Redis) signal(send func(*process) error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.proc == nil || !r.proc.running() {
		return errors.New("redis is not running")
	}
	return send(r.proc)
}

// gentle is stop with the grace of a redis-server.
func (p *process) gentle() error { return p.stop(stopGrace) }

// end ends the process by the given means, if there is one. The caller holds r.mu.
func (r *Redis) end(by func(*process) error) error {
	if r.proc == nil {
		return nil
	}
	if err := by(r.proc); err != nil {
		return err
	}
	r.proc = nil
	return nil
}

func (r *Redis) makeDir() error { return r.dir.make("offpath-redis-") }

// start launches the process with whatever is in its directory, and waits until it answers. No
// process is running; the caller holds r.mu, or is the only one to know r.
func (r *Redis) start(ctx context.Context) error {
	if err := r.makeDir(); err != nil {
		return err
	}
	args := append([]string{
		"--bind", host, "--port", strconv.Itoa(r.port), "--dir", string(r.dir),
		"--save", "", "--appendonly", "no", "--dbfilename", snapshotName,
	}, r.args...)
	proc, err := startProcess(r.binary, nil, r.env, args...)
	if err != nil {
		return err
	}
	client := adminClient(r.Addr())
	defer client.Close()
	err = await(ctx, proc, func(ctx context.Context) (bool, error) { return answers(ctx, client, proc.pid()) })
	if err != nil {
		_ = proc.kill()
		return fmt.Errorf("%w; its log ends:\n%s", err, proc.log.String())
	}
	r.proc = proc
	return nil
}
