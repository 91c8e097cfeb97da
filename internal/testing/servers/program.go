package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// ProgramOptions says which program to start, and how.
type ProgramOptions struct {
	// Name of the program, in PATH or in a directory for administrators' programs, such as "nginx".
	Name string
	// Prepare returns the arguments that make the program listen on this port of 127.0.0.1. It may be asked for several ports.
	Prepare func(port int) (args []string, err error)
}

// Program is a foreign server as a child process, such as a proxy. Its methods may be called from any goroutine.
type Program struct {
	port int
	proc *process
}

// StartProgram starts a program on a free port and returns once that accepts connections. The context bounds the start, not
// the program's life. The error says what to install if there is none, and ends with the last of what it has printed if it
// does not start.
func StartProgram(ctx context.Context, options ProgramOptions) (*Program, error) {
	path, err := findProgram(options.Name)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", options.Name, err)
	}
	for attempt := 1; ; attempt++ {
		p, err := startProgramOnce(ctx, path, options.Prepare)
		if err == nil {
			return p, nil
		}
		if !errors.Is(err, errPortTaken) || attempt == portAttempts {
			return nil, fmt.Errorf("start %s: %w", options.Name, err)
		}
	}
}

func startProgramOnce(ctx context.Context, path string, prepare func(int) ([]string, error)) (*Program, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	args, err := prepare(port)
	if err != nil {
		return nil, err
	}
	proc, err := startProcess(path, args...)
	if err != nil {
		return nil, err
	}
	if err := awaitPort(ctx, proc, address(port)); err != nil {
		_ = proc.kill()
		return nil, fmt.Errorf("%w; it said last:\n%s", err, proc.log.String())
	}
	return &Program{port: port, proc: proc}, nil
}

// findProgram looks where users look, and where administrators do: Debian has servers there.
func findProgram(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err == nil {
		return path, nil
	}
	for _, dir := range []string{"/usr/sbin", "/usr/local/sbin"} {
		if there, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return there, nil
		}
	}
	return "", fmt.Errorf("%w (install the package %s; scripts/need.sh does, in the sources)", err, name)
}

// awaitPort returns once something accepts connections at the address.
func awaitPort(ctx context.Context, proc *process, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	poll := time.NewTicker(readyPoll)
	defer poll.Stop()
	dialer := net.Dialer{Timeout: answerTimeout}
	for {
		conn, err := dialer.DialContext(ctx, "tcp", addr)
		if err == nil && proc.running() {
			return conn.Close()
		}
		select {
		case <-proc.done:
			if strings.Contains(strings.ToLower(proc.log.String()), "address already in use") {
				return errPortTaken
			}
			return errors.New("it ended at once")
		case <-ctx.Done():
			return fmt.Errorf("wait for it to listen: %w", errors.Join(ctx.Err(), err))
		case <-poll.C:
		}
	}
}

// URL returns where the program listens.
func (p *Program) URL() string { return "http://" + address(p.port) }

// Log returns the last few kilobytes of what it has printed.
func (p *Program) Log() string { return p.proc.log.String() }

// programGrace is how long a foreign program may take to end by itself: some wait for their
// clients. Nobody looks at what one leaves behind.
const programGrace = 5 * time.Second

// Stop ends the program, by force if it has not ended after 5 s. To stop a stopped one is no error.
func (p *Program) Stop() error {
	if err := p.proc.stop(programGrace); err != nil {
		return fmt.Errorf("stop process %d: %w", p.proc.pid(), err)
	}
	return nil
}
