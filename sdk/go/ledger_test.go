package sealog_test

import (
	"os"
	"os/exec"
	"testing"
)

// A small ledger: few kills. internal/ledger has the recipe for many.
func TestNothingIsLostStoredTwiceOrOutOfOrderOverKills(t *testing.T) {
	command := exec.Command(build(t, "ledger"), "-app-kills", "3", "-server-kills", "2")
	command.Env = append(os.Environ(), "SEALOG_BIN="+sealogBin(t))
	if out, err := command.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
