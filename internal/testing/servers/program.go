package servers

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
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
	p, err := onFreePort(func(port int) (*Program, error) { return startProgramOnce(ctx, path, port, options.Prepare) })
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", options.Name, err)
	}
	return p, nil
}

func startProgramOnce(ctx context.Context, path string, port int, prepare func(int) ([]string, error)) (*Program, error) {
	args, err := prepare(port)
	if err != nil {
		return nil, err
	}
	proc, err := startProcess(path, args...)
	if err != nil {
		return nil, err
	}
	dialer := net.Dialer{Timeout: answerTimeout}
	err = await(ctx, proc, func(ctx context.Context) (bool, error) {
		conn, err := dialer.DialContext(ctx, "tcp", address(port))
		if err != nil {
			return false, err
		}
		return proc.running(), conn.Close()
	})
	if err != nil {
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
