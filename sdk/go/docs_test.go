package sealog_test

import (
	"bufio"
	"fmt"
	"go/version"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
)

// The scripted server of the suite, as a program: it prints its address and ends with its input. It knows the
// actions of its arguments.
const scriptedServer = `
import sys
sys.path.insert(0, "../suite")
from server import ACTIONS, Server, Service
ACTIONS.update({name: [] for name in sys.argv[2:]})
with Server([], Service(sys.argv[1])) as server:
    print(server.url, flush=True)
    sys.stdin.read()
    print(server.service.stored().count("document/249"))
`

// A block that is no whole file is the body of a function. They share a program, because linking takes
// longest.
const aroundABody = `package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"time"

	sealog "github.com/sealog/sealog/sdk/go"
)

var _, _, _, _, _, _ = errors.New, fmt.Sprint, math.NaN, http.Handle, os.Getenv, time.Now

func init() { examples = append(examples, example%[1]d) }

func example%[1]d(ctx context.Context) error {
%[2]s
	return nil
}
`

const aroundBodies = `package main

import (
	"context"
	"fmt"
	"os"
)

var examples []func(context.Context) error

func main() {
	for i, example := range examples {
		if err := example(context.Background()); err != nil {
			fmt.Println("example", i, err)
			os.Exit(1)
		}
	}
	fmt.Println(len(examples), "examples")
}
`

// emptyProject makes a module that uses this one by a replace directive.
func emptyProject(t *testing.T) string {
	t.Helper()
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	mod := "module example.org/app\n\ngo 1.23\n\nrequire github.com/sealog/sealog/sdk/go v0.0.0\n\n" +
		"replace github.com/sealog/sealog/sdk/go => " + here + "\n"
	if err := os.WriteFile(filepath.Join(folder, "go.mod"), []byte(mod), 0o600); err != nil {
		t.Fatal(err)
	}
	return folder
}

var goBlock = regexp.MustCompile("(?ms)^```go\n(.*?)^```$")

func TestTheExamplesOfTheDocumentationRun(t *testing.T) {
	if version.Compare(runtime.Version(), "go1.23") < 0 {
		t.Skip("the examples range over functions, which needs Go 1.23")
	}
	page, err := os.ReadFile("../../docs/sdk-go.md")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := goBlock.FindAllStringSubmatch(string(page), -1)
	first := goBlock.FindAllStringSubmatch(string(readme), -1)
	if len(blocks) < 11 || len(first) != 1 {
		t.Fatalf("found %d and %d examples", len(blocks), len(first))
	}
	actions := []string{}
	for _, one := range regexp.MustCompile(`Action: "([a-z._]+)"`).FindAllStringSubmatch(string(page), -1) {
		if one[1] != "user.logn" {
			actions = append(actions, one[1])
		}
	}
	server := exec.Command("python3", append([]string{"-c", scriptedServer, testKey}, actions...)...)
	input, err := server.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(output)
	url, err := lines.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	url = strings.TrimSpace(url)

	filled := strings.NewReplacer("https://sealog.example.org", url, "at_live_…", testKey)
	quickStart := filled.Replace(first[0][1])
	if !strings.Contains(quickStart, url) || !strings.Contains(quickStart, testKey) {
		t.Errorf("the README's example has no address or key:\n%s", quickStart)
	}
	quickStart += "if err != nil || receipt.ChainSeq != 1 {\n return fmt.Errorf(\"%v %w\", receipt, err)\n}"
	project, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile("(?m)^\\| \\[Go\\].*\\| `(.*)` \\|$").FindStringSubmatch(string(project))
	if line == nil {
		t.Fatal("the README of the project has no line for Go")
	}
	ofProject := "client, err := sealog.New(sealog.Options{})\nif err != nil {\n return err\n}\nreceipt, err := " + line[1] +
		"\nif err != nil || receipt.ChainSeq == 0 {\n return fmt.Errorf(\"%v %w\", receipt, err)\n}"
	codes := []string{quickStart, ofProject} // first: its event has number 1
	for _, block := range blocks {
		codes = append(codes, block[1])
	}
	folder := emptyProject(t)
	write := func(name, code string) {
		t.Helper()
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(code), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("bodies/main.go", aroundBodies)
	bodies := 0
	for i, code := range codes {
		switch {
		case strings.HasPrefix(code, "package main"):
			write("whole/main.go", code)
		case strings.Contains(code, "*testing.T"):
			write("app/app_test.go", code)
		default:
			write(fmt.Sprintf("bodies/example%02d.go", i), fmt.Sprintf(aroundABody, i, code))
			bodies++
		}
	}
	run := func(name string, arguments ...string) string {
		t.Helper()
		command := exec.Command(name, arguments...)
		command.Dir = folder
		command.Env = append(os.Environ(), "SEALOG_URL="+url, "SEALOG_API_KEY="+testKey)
		out, err := command.CombinedOutput()
		if err != nil {
			t.Errorf("%s %v: %v\n%s", name, arguments, err, out)
		}
		return string(out)
	}
	run("go", "vet", "./...")
	if out := run("go", "test", "-v", "./app"); !strings.Contains(out, "--- PASS") {
		t.Error(out)
	}
	if out := run("go", "run", "./bodies"); !strings.Contains(out, fmt.Sprint(bodies, " examples")) {
		t.Error(out)
	}
	receipt := regexp.MustCompile(`^[0-9A-Z]{26} \d+ [0-9a-f]{64}\n$`)
	if out := run("go", "run", "./whole"); !receipt.MatchString(out) {
		t.Errorf("the first example printed %q", out)
	}
	_ = input.Close()
	rest, _ := io.ReadAll(lines)
	if err := server.Wait(); err != nil || strings.TrimSpace(string(rest)) != "1" {
		t.Errorf("the example with 250 events stored its last one %q times: %v", rest, err)
	}
}
