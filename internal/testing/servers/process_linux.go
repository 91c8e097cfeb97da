package servers

import "syscall"

// dieWithParent has the kernel kill the child when this process ends, however it ends. The child
// has a process group of its own, so that Ctrl-C reaches this process only, which can then stop
// things in order.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
