// The ledger: an application and the server are killed with SIGKILL again and again, and every event is
// accounted for.
//
//	SEALOG_BIN=path/to/sealog go run ./internal/ledger [-app-kills 30] [-server-kills 20]
//
// The application numbers its events, enqueues them with a spool, and writes each receipt to a file. At the
// end the ledger counts accepted events that are not stored (lost), events that are stored twice, events
// without a receipt, receipts whose event is missing or another one, and pairs in the wrong order. All must
// be 0.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	sealog "github.com/sealog/sealog/sdk/go"
)

func main() {
	if len(os.Args) > 2 && os.Args[1] == "application" {
		check(application(os.Args[2], len(os.Args) > 3))
		return
	}
	appKills := flag.Int("app-kills", 30, "how often to kill the application")
	serverKills := flag.Int("server-kills", 20, "how often to kill the server")
	seed := flag.Uint64("seed", seedDefault(), "of the random moments; SEALOG_SEED is its default")
	flag.Parse()
	fmt.Printf("SEALOG_SEED=%d\n", *seed)
	counts, err := run(*appKills, *serverKills, rand.New(rand.NewPCG(*seed, 0)))
	check(err)
	text, _ := json.Marshal(counts)
	fmt.Println(string(text))
	if counts.Acknowledged == 0 || counts.Lost+counts.Twice+counts.NeverAcknowledged+counts.AcknowledgedLost+
		counts.OutOfOrder+counts.LeftInSpool > 0 || !counts.ChainValid {
		os.Exit(1)
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func seedDefault() uint64 {
	if seed, err := strconv.ParseUint(os.Getenv("SEALOG_SEED"), 10, 64); err == nil {
		return seed
	}
	return uint64(time.Now().UnixNano())
}

// application logs until it is killed. To drain, it sends what its predecessors left.
func application(folder string, drain bool) error {
	accepted, err := os.OpenFile(folder+"/accepted", os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	acknowledged, err := os.OpenFile(folder+"/acknowledged", os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	info, err := accepted.Stat()
	if err != nil {
		return err
	}
	client, err := sealog.New(sealog.Options{
		SpoolDir: folder + "/spool", SpoolMaxBytes: 200_000, FlushInterval: 10 * time.Millisecond,
		RetryBase: 20 * time.Millisecond, Timeout: 3 * time.Second,
		OnReceipt: func(_ context.Context, receipt sealog.Receipt, event sealog.Event) {
			_, err := fmt.Fprintf(acknowledged, "%s %d %s\n", event.Resource, receipt.ChainSeq, receipt.LogID)
			check(err)
		},
	})
	if err != nil {
		return err
	}
	ctx := context.Background()
	if drain {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		if pending := client.Close(ctx); pending > 0 {
			return fmt.Errorf("%d events were not sent", pending)
		}
		return nil
	}
	for number := info.Size() / 8; ; number++ {
		// A kill between the two writes leaves an accepted event without a note. The next process repeats its
		// number, so a number is unique only with its process.
		event := sealog.Event{Action: "document.updated", Resource: fmt.Sprintf("%d/%d", number, os.Getpid())}
		if err := client.Enqueue(ctx, event); err != nil {
			return err
		}
		if _, err := fmt.Fprintf(accepted, "%7d\n", os.Getpid()); err != nil {
			return err
		}
	}
}

// server is the real one on a fixed port, which can be killed and started again.
type server struct {
	program, folder, port string
	process               *exec.Cmd
}

var portForm = regexp.MustCompile(`127\.0\.0\.1:([1-9]\d*)`)

func (s *server) start() error {
	log, err := os.Create(s.folder + "/sealog.log")
	if err != nil {
		return err
	}
	defer log.Close()
	s.process = exec.Command(s.program, "serve", "--listen", "127.0.0.1:"+s.port, "--data-dir", s.folder+"/data",
		"--limits-per-ip-rps", "0", "--limits-live-rps", "0")
	s.process.Dir, s.process.Stdout, s.process.Stderr = s.folder, log, log
	s.process.Env = []string{"PATH=" + os.Getenv("PATH")}
	if err := s.process.Start(); err != nil {
		return err
	}
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		text, _ := os.ReadFile(log.Name())
		if found := portForm.FindSubmatch(text); found != nil {
			s.port = string(found[1])
			return nil
		}
	}
	text, _ := os.ReadFile(log.Name())
	return fmt.Errorf("the server did not start: %s", text)
}

func kill(process *exec.Cmd) {
	_ = process.Process.Kill()
	_ = process.Wait()
}

var keyForm = regexp.MustCompile(`live key +(\S+)`)

func run(appKills, serverKills int, chance *rand.Rand) (counts, error) {
	program, err := filepath.Abs(os.Getenv("SEALOG_BIN"))
	if err != nil || os.Getenv("SEALOG_BIN") == "" {
		return counts{}, errors.New("set SEALOG_BIN to a Sealog server")
	}
	folder, err := os.MkdirTemp("", "sealog-ledger-")
	if err != nil {
		return counts{}, err
	}
	defer os.RemoveAll(folder)
	service := &server{program: program, folder: folder, port: "0"}
	if err := service.start(); err != nil {
		return counts{}, err
	}
	defer func() { kill(service.process) }()
	text, err := os.ReadFile(folder + "/data/first-run.txt")
	if err != nil {
		return counts{}, err
	}
	key, url := string(keyForm.FindSubmatch(text)[1]), "http://127.0.0.1:"+service.port
	start := func(more ...string) (*exec.Cmd, error) {
		app := exec.Command(os.Args[0], append([]string{"application", folder}, more...)...)
		app.Env = append(os.Environ(), "SEALOG_API_KEY="+key, "SEALOG_URL="+url)
		return app, app.Start()
	}
	pause := func(from, to float64) { // a random moment before a kill
		time.Sleep(time.Duration((from + (to-from)*chance.Float64()) * float64(time.Second)))
	}
	app, err := start()
	if err != nil {
		return counts{}, err
	}
	defer func() { kill(app) }()
	for _, victim := range chance.Perm(appKills + serverKills) {
		pause(0.1, 0.7)
		if victim < serverKills {
			kill(service.process)
			pause(0, 0.3)
			err = service.start()
		} else {
			kill(app)
			app, err = start()
		}
		if err != nil {
			return counts{}, err
		}
	}
	pause(0.5, 0.6)
	kill(app)
	if app, err = start("drain"); err != nil {
		return counts{}, err
	}
	if err := app.Wait(); err != nil {
		return counts{}, fmt.Errorf("the last process did not send what was left: %w", err)
	}
	return count(folder, url, key)
}

type counts struct {
	Accepted          int  `json:"accepted"`
	Stored            int  `json:"stored"`
	Acknowledged      int  `json:"acknowledged"`
	Lost              int  `json:"lost"`
	Twice             int  `json:"twice"`
	NeverAcknowledged int  `json:"never_acknowledged"`
	AcknowledgedLost  int  `json:"acknowledged_lost"`
	OutOfOrder        int  `json:"out_of_order"`
	LeftInSpool       int  `json:"left_in_spool"`
	ChainValid        bool `json:"chain_valid"`
}

func count(folder, url, key string) (c counts, err error) {
	client, err := sealog.New(sealog.Options{URL: url, APIKey: key})
	if err != nil {
		return c, err
	}
	ctx := context.Background()
	defer client.Close(ctx)
	var stored []string // newest first
	sealed := map[string]string{}
	chain := sealog.NewVerifier()
	client.Events(ctx, sealog.Filter{})(func(event *sealog.StoredEvent, failed error) bool {
		if err = failed; err == nil {
			stored = append(stored, event.Resource)
			sealed[event.Resource] = fmt.Sprintf("%d %s", event.ChainSeq, event.LogID)
			err = chain.Add(event.Text)
		}
		return err == nil
	})
	if err != nil {
		return c, err
	}
	accepted, err := os.ReadFile(folder + "/accepted")
	if err != nil {
		return c, err
	}
	acknowledged, err := os.ReadFile(folder + "/acknowledged")
	if err != nil {
		return c, err
	}
	receipts := map[string]bool{}
	for _, line := range strings.SplitAfter(string(acknowledged), "\n") {
		resource, rest, _ := strings.Cut(line, " ")
		if !strings.HasSuffix(rest, "\n") {
			continue // a write that a kill interrupted
		}
		receipts[resource] = true
		if sealed[resource]+"\n" != rest {
			c.AcknowledgedLost++
		}
	}
	for number, process := range strings.Fields(string(accepted)) {
		resource := fmt.Sprintf("%d/%s", number, process)
		if c.Accepted++; sealed[resource] == "" {
			c.Lost++
		}
		if !receipts[resource] {
			c.NeverAcknowledged++
		}
	}
	last := -1
	for i := len(stored) - 1; i >= 0; i-- {
		text, _, _ := strings.Cut(stored[i], "/")
		number, _ := strconv.Atoi(text)
		if number < last {
			c.OutOfOrder++
		}
		last = number
	}
	left, err := filepath.Glob(folder + "/spool/*.spool")
	c.Stored, c.Twice, c.Acknowledged = len(stored), len(stored)-len(sealed), len(receipts)
	c.LeftInSpool, c.ChainValid = len(left), chain.Result().Valid
	return c, err
}
