//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package sealog

import (
	"os"
	"syscall"
)

// lock takes the lock of a spool file without waiting. The kernel frees it when the process dies.
func lock(f *os.File) error {
	for {
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != syscall.EINTR {
			return err
		}
	}
}
