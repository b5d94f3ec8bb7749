package sealog_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// build compiles one of the programs under internal.
func build(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	out, err := exec.Command("go", "build", "-o", path, "./internal/"+name).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

func runSuite(t *testing.T, arguments ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	arguments = append([]string{"../suite/run.py"}, arguments...)
	out, err := exec.CommandContext(ctx, "python3", arguments...).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "scenarios passed") {
		t.Errorf("%v\n%s", err, out)
	}
}

// The behaviour suite that all client libraries share.
func TestEveryScenarioOfTheSuitePasses(t *testing.T) {
	driver := build(t, "driver")
	t.Run("against the scripted server", func(t *testing.T) { runSuite(t, "--", driver) })
	t.Run("against a real server", func(t *testing.T) { runSuite(t, "--server", sealogBin(t), "--", driver) })
	python := "python3 -S ../python/tests/driver.py"
	t.Run("Python sends what Go left", func(t *testing.T) {
		runSuite(t, "--only", "spool", "--other", python, "--", driver)
	})
	t.Run("Go sends what Python left", func(t *testing.T) {
		runSuite(t, append([]string{"--only", "spool", "--other", driver, "--"}, strings.Fields(python)...)...)
	})
}

// sealogBin is the server that SEALOG_BIN names.
func sealogBin(t *testing.T) string {
	path := os.Getenv("SEALOG_BIN")
	if path == "" {
		t.Skip("SEALOG_BIN names no server")
	}
	absolute, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return absolute
}
