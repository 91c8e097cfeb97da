package servers

import (
	"context"
	"fmt"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// ProgramOptions says which program to start, and how.
type ProgramOptions struct {
	// Name of the program, in PATH or in a directory for administrators' programs, such as "nginx".
	Name string
	// Prepare returns the arguments that make the program listen on this port of 127.0.0.1. It may
	// be asked for several ports, and for the same one at each restart.
	Prepare func(port int) (args []string, err error)
	// Env are variables of its environment, beside this process' own, as KEY=VALUE.
	Env []string
	// Output gets all that it prints, if it is set, from several goroutines.
	Output io.Writer
}

// Program is a server as a child process, such as a proxy. Its methods may be called from any
// goroutine.
type Program struct {
	path    string
	options ProgramOptions
	port    int

	mu   sync.Mutex
	proc *process
}

// StartProgram starts a program on a free port and returns once that accepts connections. The
// context bounds the start, not the program's life. The error says what to install if there is
// none, and ends with the last of what it has printed if it does not start.
func StartProgram(ctx context.Context, options ProgramOptions) (*Program, error) {
	path, err := findProgram(options.Name)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", options.Name, err)
	}
	p, err := onFreePort(func(port int) (*Program, error) {
		p := &Program{path: path, options: options, port: port}
		return p, p.start(ctx)
	})
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", options.Name, err)
	}
	return p, nil
}

// start starts the process, and waits until it accepts connections. The caller holds p.mu, or is
// the only one to know p.
func (p *Program) start(ctx context.Context) error {
	args, err := p.options.Prepare(p.port)
	if err != nil {
		return err
	}
	proc, err := startProcess(p.path, p.options.Output, p.options.Env, args...)
	if err != nil {
		return err
	}
	dialer := net.Dialer{Timeout: answerTimeout}
	err = await(ctx, proc, func(ctx context.Context) (bool, error) {
		conn, err := dialer.DialContext(ctx, "tcp", address(p.port))
		if err != nil {
			return false, err
		}
		return proc.running(), conn.Close()
	})
	if err != nil {
		_ = proc.kill()
		return fmt.Errorf("%w; it said last:\n%s", err, proc.log.String())
	}
	p.proc = proc
	return nil
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

// URL returns where the program listens.
func (p *Program) URL() string { return "http://" + address(p.port) }

// Address returns where it listens, as host:port. It stays the same over restarts.
func (p *Program) Address() string { return address(p.port) }

// Log returns the last few kilobytes of what it has printed since its last start.
func (p *Program) Log() string { return p.process().log.String() }

func (p *Program) process() *process {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.proc
}

// Running says whether it has not ended. A paused program runs.
func (p *Program) Running() bool { return p.process().running() }

// Kill ends it at once, as a crash would.
func (p *Program) Kill() error { return p.process().kill() }

// ExitStatus is that of a program that has ended by itself or in order; -1 if it was killed, or
// runs.
func (p *Program) ExitStatus() int {
	if proc := p.process(); !proc.running() {
		return proc.cmd.ProcessState.ExitCode()
	}
	return -1
}

// Reload asks the program to read its configuration again, by SIGHUP.
func (p *Program) Reload() error { return p.process().signal(syscall.SIGHUP) }

// Pause freezes the program, until Resume: its connections stay open, and nothing is answered. On a
// system without such signals the error is errors.ErrUnsupported.
func (p *Program) Pause() error { return p.process().pause() }

// Resume ends a Pause.
func (p *Program) Resume() error { return p.process().resume() }

// Restart starts it again at the same port, once it has ended, and returns when it accepts
// connections; the context bounds that.
func (p *Program) Restart(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.proc.running() {
		return fmt.Errorf("restart %s: it runs", p.options.Name)
	}
	if err := p.start(ctx); err != nil {
		return fmt.Errorf("restart %s: %w", p.options.Name, err)
	}
	return nil
}

// programGrace is how long a foreign program may take to end by itself: some wait for their
// clients. Nobody looks at what one leaves behind.
const programGrace = 5 * time.Second

// Stop ends the program, by force if it has not ended after 5 s. To stop a stopped one is no error.
func (p *Program) Stop() error {
	return p.StopWithin(programGrace)
}

// StopWithin is Stop with another grace.
func (p *Program) StopWithin(grace time.Duration) error {
	proc := p.process()
	if err := proc.stop(grace); err != nil {
		return fmt.Errorf("stop process %d: %w", proc.pid(), err)
	}
	return nil
}
