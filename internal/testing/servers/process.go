package servers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// process is one child process. Its methods may be called from any goroutine.
type process struct {
	cmd  *exec.Cmd
	log  tail
	done chan struct{} // closed once the child has ended and has been waited for
}

// startProcess starts a command and sees to it that it does not outlive this process. What it
// prints also goes to output, if that is not nil; env is beside this process' environment.
func startProcess(path string, output io.Writer, env []string, args ...string) (*process, error) {
	p := &process{cmd: exec.Command(path, args...), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	var log io.Writer = &p.log
	if output != nil {
		log = io.MultiWriter(log, output)
	}
	p.cmd.Stdout, p.cmd.Stderr = log, log
	// A grandchild that holds the output open (Redis forks to save) must not hold up Wait. But what
	// the child has said last is why it has ended.
	p.cmd.WaitDelay = 10 * time.Second
	p.cmd.SysProcAttr = dieWithParent()

	started := make(chan error)
	go p.own(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	return p, nil
}

// own starts the child and waits for it, on a thread that it keeps: Linux sends the parent-death
// signal when the thread ends that forked, not the process, and Go ends threads as it likes.
func (p *process) own(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	err := p.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	_ = p.cmd.Wait() // its state says how it ended
	close(p.done)
}

func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// stop asks the child to end, and kills it if it has not done so within the grace.
func (p *process) stop(grace time.Duration) error {
	// A paused child would not get to hear the request.
	if err := p.resume(); err != nil {
		return err
	}
	if err := p.signal(syscall.SIGTERM); err != nil {
		return err
	}
	patience := time.NewTimer(grace)
	defer patience.Stop()
	select {
	case <-p.done:
		return nil
	case <-patience.C:
		return p.kill()
	}
}

// kill ends the child at once, as a crash would, and waits until it is gone.
func (p *process) kill() error {
	if err := p.signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.done
	return nil
}

// signal sends a signal; a child that is gone already is no error.
func (p *process) signal(signal os.Signal) error {
	if err := p.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("send %s to process %d: %w", signal, p.pid(), err)
	}
	return nil
}

// await polls until something is ready: until the context or the process ends, or for a minute at
// the most. The process may be nil.
func await(ctx context.Context, proc *process, ready func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	poll := time.NewTicker(readyPoll)
	defer poll.Stop()
	var ended chan struct{}
	if proc != nil {
		ended = proc.done
	}
	for {
		ok, err := ready(ctx)
		if ok {
			return nil
		}
		select {
		case <-ended:
			if strings.Contains(strings.ToLower(proc.log.String()), "address already in use") {
				return errPortTaken
			}
			return errors.New("it ended at once")
		case <-ctx.Done():
			return fmt.Errorf("wait for an answer: %w", errors.Join(ctx.Err(), err))
		case <-poll.C:
		}
	}
}

// tail keeps the last few kilobytes written to it, for error messages.
type tail struct {
	mu   sync.Mutex
	text []byte
}

const tailSize = 4 << 10

// tempDir is a temporary directory, or "" if there is none.
type tempDir string

func (d *tempDir) make(pattern string) error {
	if *d != "" {
		return nil
	}
	dir, err := os.MkdirTemp("", pattern)
	if err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	*d = tempDir(dir)
	return nil
}

func (d *tempDir) remove() error {
	if *d == "" {
		return nil
	}
	if err := os.RemoveAll(string(*d)); err != nil {
		return fmt.Errorf("remove data: %w", err)
	}
	*d = ""
	return nil
}

func (t *tail) Write(text []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, text...)
	if excess := len(t.text) - tailSize; excess > 0 {
		t.text = append(t.text[:0], t.text[excess:]...)
	}
	return len(text), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}
