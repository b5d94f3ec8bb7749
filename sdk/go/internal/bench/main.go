// What Enqueue costs, as ratios in one run: to json.Marshal of the same event, in memory and with a spool.
//
//	go run ./internal/bench [-events 100000] [-check]
//	SEALOG_BIN=path/to/sealog go run ./internal/bench -rate
//
// While Enqueue is timed the sender waits for an answer, so its work is not counted as the caller's. With
// -rate, a real server gets the same events, first as batches that a bare HTTP client sends one after the
// other, then by Enqueue; the two take turns. -check fails if a ratio is over its bound: 3, 10 with a spool,
// half of the rate.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	sealog "github.com/sealog/sealog/sdk/go"
)

var testKey = "at_live_" + strings.Repeat("A", 49)

var event = sealog.Event{
	Action: "document.updated", ActorID: "u-17", Resource: "document/42", SessionID: "s-9f2c81",
	Metadata: map[string]any{"title": "Q3 report", "version": 12, "changed": []any{"title", "body"},
		"ip_address": "203.0.113.9", "size": 18231.5},
}

// ended is a context for Close: the service of this benchmark answers nothing, so waiting has no use.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// silent answers nothing until its request is given up.
type silent struct{}

func (silent) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

var isSlow bool

func main() {
	events := flag.Int("events", 100_000, "events for each figure")
	isChecked := flag.Bool("check", false, "fail if a ratio is over its bound")
	isRate := flag.Bool("rate", false, "measure the rate against the server that SEALOG_BIN names")
	flag.Parse()
	slog.SetDefault(slog.New(slog.NewTextHandler(io.Discard, nil)))
	var err error
	if *isRate {
		err = rate(*events)
	} else {
		err = costs(*events)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if *isChecked && isSlow {
		os.Exit(1)
	}
}

func costs(events int) error {
	marshal := func(n int) (time.Duration, error) {
		begin := time.Now()
		for range n {
			if _, err := json.Marshal(event); err != nil {
				return 0, err
			}
		}
		return time.Since(begin), nil
	}
	folder, err := os.MkdirTemp("", "sealog-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	kinds := []struct {
		name    string
		bound   float64
		share   int
		measure func(n int) (time.Duration, error)
	}{
		{"json.Marshal of the event", 0, 1, marshal},
		{"Enqueue", 3, 1, func(n int) (time.Duration, error) { return enqueue(n, sealog.Options{}) }},
		{"Enqueue with a spool", 10, 1, func(n int) (time.Duration, error) {
			return enqueue(n, sealog.Options{SpoolDir: folder + "/a"})
		}},
		{"Enqueue with a synced spool", 0, 500, func(n int) (time.Duration, error) {
			return enqueue(n, sealog.Options{SpoolDir: folder + "/b", SpoolSync: true})
		}},
	}
	const rounds = 5 // taken in turns, so that a busy moment of the machine slows all of them
	each := make([][]float64, len(kinds))
	for range rounds {
		for i, kind := range kinds {
			n := max(events/rounds/kind.share, 10)
			taken, err := kind.measure(n)
			if err != nil {
				return err
			}
			each[i] = append(each[i], float64(taken.Nanoseconds())/float64(n)/1000)
		}
	}
	base := median(each[0])
	for i, kind := range kinds {
		us := median(each[i])
		fmt.Printf("%-30s %9.2f us %7.2f times", kind.name, us, us/base)
		if kind.bound > 0 {
			fmt.Printf(" (bound %.0f)", kind.bound)
			isSlow = isSlow || us > kind.bound*base
		}
		fmt.Println()
	}
	return memory()
}

func median(list []float64) float64 {
	slices.Sort(list)
	return list[len(list)/2]
}

func enqueue(n int, options sealog.Options) (time.Duration, error) {
	options.APIKey, options.URL, options.Transport = testKey, "http://127.0.0.1", silent{}
	options.QueueMaxEvents, options.QueueMaxBytes, options.SpoolMaxBytes = n, 1<<30, 1<<30
	options.FlushInterval, options.OnError = time.Hour, func(context.Context, error, sealog.Event) {}
	client, err := sealog.New(options)
	if err != nil {
		return 0, err
	}
	begin := time.Now()
	for range n {
		if err := client.Enqueue(context.Background(), event); err != nil {
			return 0, err
		}
	}
	taken := time.Since(begin)
	client.Close(ended)
	if options.SpoolDir != "" {
		err = os.RemoveAll(options.SpoolDir)
	}
	return taken, err
}

// memory fills a queue whose service is down, and offers it as many events again.
func memory() error {
	const n = 10_000
	client, err := sealog.New(sealog.Options{APIKey: testKey, Transport: silent{}, OnFull: "error",
		QueueMaxEvents: n, OnError: func(context.Context, error, sealog.Event) {}})
	if err != nil {
		return err
	}
	ctx := context.Background()
	used := func() float64 {
		var stats runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&stats)
		return float64(stats.HeapAlloc) / n
	}
	before := used()
	for range n {
		if err := client.Enqueue(ctx, event); err != nil {
			return err
		}
	}
	full := used()
	for range n {
		var refused *sealog.QueueFull
		if err := client.Enqueue(ctx, event); !errors.As(err, &refused) {
			return fmt.Errorf("a full queue returned %v", err)
		}
	}
	after := used()
	text, _ := json.Marshal(event)
	fmt.Printf("%-30s %9.0f bytes for each event of %d; after as many refused ones %.0f\n",
		"full queue of 10,000", full-before, len(text), after-before)
	isSlow = isSlow || after-before > (full-before)*1.1
	client.Close(ended)
	return nil
}

// rate compares Enqueue with batches that are sent directly, one after the other, over one connection.
func rate(events int) error {
	folder, err := os.MkdirTemp("", "sealog-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	server := exec.Command(os.Getenv("SEALOG_BIN"), "serve", "--listen", "127.0.0.1:0",
		"--data-dir", folder+"/data", "--limits-per-ip-rps", "0", "--limits-live-rps", "0")
	var output bytes.Buffer
	reader, writer := io.Pipe()
	server.Stdout, server.Stderr, server.Env = writer, writer, []string{"PATH=" + os.Getenv("PATH")}
	if err := server.Start(); err != nil {
		return fmt.Errorf("set SEALOG_BIN to a Sealog server: %w", err)
	}
	defer func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	}()
	address := ""
	for chunk := make([]byte, 4096); address == ""; {
		n, err := reader.Read(chunk)
		if err != nil {
			return err
		}
		output.Write(chunk[:n])
		address = regexp.MustCompile(`127\.0\.0\.1:[1-9]\d*`).FindString(output.String())
	}
	go func() { _, _ = io.Copy(io.Discard, reader) }()
	text, err := os.ReadFile(folder + "/data/first-run.txt")
	if err != nil {
		return err
	}
	key := string(regexp.MustCompile(`live key +(\S+)`).FindSubmatch(text)[1])
	const rounds = 5 // the median of their ratios counts: what is busy beside them slows a whole round
	rates, ratios := make([][]float64, 4), make([][]float64, 4)
	for round := range rounds {
		one, err := direct(address, key, events/rounds)
		if err != nil {
			return err
		}
		four, err := fourDirect(address, key, events/rounds)
		if err != nil {
			return err
		}
		two, err := throughQueue(address, key, events/rounds, "")
		if err != nil {
			return err
		}
		three, err := throughQueue(address, key, events/rounds, fmt.Sprintf("%s/spool%d", folder, round))
		if err != nil {
			return err
		}
		for i, rate := range []float64{one, four, two, three} {
			rates[i], ratios[i] = append(rates[i], rate), append(ratios[i], rate/one)
		}
	}
	names := []string{"batches of 100, directly", "on four connections", "Enqueue and Close", "the same with a spool"}
	for i, name := range names {
		bound := map[int]string{2: " (bound 0.5)"}[i]
		fmt.Printf("%-30s %9.0f events/s %7.2f times%s\n", name, median(rates[i]), median(ratios[i]), bound)
	}
	isSlow = median(ratios[2]) < 0.5
	return nil
}

func direct(address, key string, events int) (float64, error) {
	text, err := json.Marshal(event)
	if err != nil {
		return 0, err
	}
	list := strings.TrimSuffix(strings.Repeat(string(text)+",", 100), ",")
	body, url := `{"events":[`+list+"]}", "http://"+address+"/v1/events/batch"
	begin := time.Now()
	for i := range events / 100 {
		request, err := http.NewRequest(http.MethodPost, url, strings.NewReader(body))
		if err != nil {
			return 0, err
		}
		request.Header.Set("Authorization", "Bearer "+key)
		request.Header.Set("Idempotency-Key", fmt.Sprintf("direct-%d-%d", begin.UnixNano(), i))
		response, err := http.DefaultTransport.RoundTrip(request)
		if err != nil {
			return 0, err
		}
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		if response.StatusCode != http.StatusAccepted {
			return 0, fmt.Errorf("the server answered %s", response.Status)
		}
	}
	return float64(events) / time.Since(begin).Seconds(), nil
}

// fourDirect is what the service takes if order does not matter. A client has one batch in flight.
func fourDirect(address, key string, events int) (float64, error) {
	begin, errs := time.Now(), make(chan error, 4)
	for range 4 {
		go func() {
			_, err := direct(address, key, events/4)
			errs <- err
		}()
	}
	var err error
	for range 4 {
		err = errors.Join(err, <-errs)
	}
	return float64(events) / time.Since(begin).Seconds(), err
}

func throughQueue(address, key string, events int, spool string) (float64, error) {
	client, err := sealog.New(sealog.Options{URL: "http://" + address, APIKey: key, SpoolDir: spool})
	if err != nil {
		return 0, err
	}
	ctx := context.Background()
	begin := time.Now()
	for range events {
		if err := client.Enqueue(ctx, event); err != nil {
			return 0, err
		}
	}
	if pending := client.Close(ctx); pending > 0 {
		return 0, fmt.Errorf("%d events were not sent", pending)
	}
	return float64(events) / time.Since(begin).Seconds(), nil
}
