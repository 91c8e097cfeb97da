//go:build unix

package servers

import "syscall"

// pause stops the child's clock, so to speak: its connections stay open and are not answered.
func (p *process) pause() error { return p.signal(syscall.SIGSTOP) }

func (p *process) resume() error { return p.signal(syscall.SIGCONT) }
