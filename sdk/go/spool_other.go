//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package sealog

import (
	"errors"
	"os"
)

func lock(*os.File) error { return errors.New("a spool needs flock, which this system lacks") }
