package sealog

import (
	"os"
	"syscall"
)

func init() {
	datasync = func(f *os.File) error {
		for {
			if err := syscall.Fdatasync(int(f.Fd())); err != syscall.EINTR {
				return err
			}
		}
	}
}
