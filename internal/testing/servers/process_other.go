//go:build !linux

package servers

import "syscall"

// dieWithParent knows no way here: a killed process leaves its children behind, but Ctrl-C reaches
// them too.
func dieWithParent() *syscall.SysProcAttr { return nil }
