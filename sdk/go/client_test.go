package sealog_test

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	sealog "github.com/sealog/sealog/sdk/go"
	"github.com/sealog/sealog/sdk/go/sealogtest"
)

var (
	ctx     = context.Background()
	testKey = "at_live_" + strings.Repeat("A", 49)
	login   = sealog.Event{Action: "user.login"}
)

// patience ends a hang; no test needs it.
func patience(t *testing.T) context.Context {
	limited, cancel := context.WithTimeout(ctx, 20*time.Second)
	t.Cleanup(cancel)
	return limited
}

// gate is a transport that answers nothing until it is opened.
type gate struct {
	next    http.RoundTripper
	open    chan struct{}
	arrived chan struct{}
}

func newGate(next http.RoundTripper) *gate {
	return &gate{next, make(chan struct{}), make(chan struct{}, 1000)}
}

func (g *gate) RoundTrip(r *http.Request) (*http.Response, error) {
	g.arrived <- struct{}{}
	select {
	case <-g.open:
		return g.next.RoundTrip(r)
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// recorded is a recorder behind a gate.
func recorded(t *testing.T, options sealog.Options) (*sealogtest.Recorder, *sealog.Client, *gate) {
	recorder := sealogtest.New(t, sealog.Options{})
	g := newGate(recorder.Transport())
	options.APIKey, options.Transport = testKey, g
	client, err := sealog.New(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		done, cancel := context.WithCancel(ctx)
		cancel()
		client.Close(done)
	})
	return recorder, client, g
}

func TestAnEndedContextEndsLogAtOnce(t *testing.T) {
	for _, attempts := range []int{1, 5} { // in the last attempt, and in one that would be repeated
		_, client, g := recorded(t, sealog.Options{MaxAttempts: attempts})
		limited, cancel := context.WithCancel(ctx)
		go func() { <-g.arrived; cancel() }()
		_, err := client.Log(limited, login)
		var transport *sealog.TransportError
		if !errors.Is(err, context.Canceled) || !errors.As(err, &transport) || transport.Code != "client/canceled" {
			t.Error(err)
		}
	}
}

func TestAnEndedContextEndsTheWaitForRoomWithoutTheEvent(t *testing.T) {
	recorder, client, g := recorded(t, sealog.Options{QueueMaxEvents: 1})
	if err := client.Enqueue(ctx, login); err != nil {
		t.Fatal(err)
	}
	limited, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	err := client.Enqueue(limited, sealog.Event{Action: "user.logout"})
	var full *sealog.QueueFull
	if !errors.As(err, &full) || !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	close(g.open)
	if pending := client.Flush(patience(t)); pending != 0 {
		t.Error(pending)
	}
	recorder.AssertLogged(1, sealog.Event{})
}

func TestACallbackMayUseTheClientWithItsContext(t *testing.T) {
	var client *sealog.Client
	results := make(chan error, 10)
	onReceipt := func(ctx context.Context, _ sealog.Receipt, event sealog.Event) {
		if event.Action == "user.login" {
			client.Flush(ctx) // it would wait for itself
			results <- client.Enqueue(ctx, sealog.Event{Action: "user.logout"})
			_, err := client.Log(ctx, sealog.Event{Action: "user.created"})
			results <- err
			client.Close(ctx)
		}
	}
	recorder, made, g := recorded(t, sealog.Options{QueueMaxEvents: 1, OnReceipt: onReceipt})
	client = made
	close(g.open)
	if err := client.Enqueue(ctx, login); err != nil {
		t.Fatal(err)
	}
	var full *sealog.QueueFull // its own event still counts
	if err := <-results; !errors.As(err, &full) {
		t.Error(err)
	}
	if err := <-results; err != nil {
		t.Error(err)
	}
	recorder.AssertLogged(1, sealog.Event{Action: "user.created"})
}

func TestACallbackThatPanicsEndsNothingElse(t *testing.T) {
	var log bytes.Buffer
	ends := make(chan string, 10)
	_, client, g := recorded(t, sealog.Options{Logger: slog.New(slog.NewTextHandler(&log, nil)),
		OnReceipt: func(_ context.Context, _ sealog.Receipt, event sealog.Event) {
			ends <- event.Resource
			panic("callback")
		}})
	close(g.open)
	for i := range 3 {
		if err := client.Enqueue(ctx, sealog.Event{Action: "user.login", Resource: fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
	}
	if pending := client.Close(patience(t)); pending != 0 || len(ends) != 3 {
		t.Error(pending, len(ends))
	}
	if strings.Count(log.String(), "panic=callback") != 3 {
		t.Error(log.String())
	}
}

func TestWithoutOnErrorALostEventIsLoggedAtLevelError(t *testing.T) {
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	recorder := sealogtest.New(t, sealog.Options{MaxAttempts: 1, Logger: logger})
	recorder.FailWith(503, "event/write_failed")
	if err := recorder.Client.Enqueue(ctx, sealog.Event{Action: "user.login", Resource: "r/77"}); err != nil {
		t.Fatal(err)
	}
	recorder.Client.Close(patience(t))
	for _, part := range []string{"level=ERROR", "event/write_failed", "r/77"} {
		if !strings.Contains(log.String(), part) {
			t.Errorf("%q lacks %q", log.String(), part)
		}
	}
}

func TestEveryAcceptedEventEndsOnceWhileGoroutinesEnqueueAndClose(t *testing.T) {
	var mu sync.Mutex
	ends := map[string]int{}
	count := func(event sealog.Event) { mu.Lock(); ends[event.Resource]++; mu.Unlock() }
	for _, spool := range []string{"", filepath.Join(t.TempDir(), "spool")} {
		_, client, g := recorded(t, sealog.Options{SpoolDir: spool, QueueMaxEvents: 50,
			FlushInterval: time.Millisecond,
			OnReceipt:     func(_ context.Context, _ sealog.Receipt, event sealog.Event) { count(event) },
			OnError:       func(_ context.Context, _ error, event sealog.Event) { count(event) }})
		close(g.open)
		var accepted []string
		var group sync.WaitGroup
		for worker := range 8 {
			group.Add(1)
			go func() {
				defer group.Done()
				for i := range 1000 {
					name := fmt.Sprintf("%d/%d/%d", len(spool), worker, i)
					if client.Enqueue(ctx, sealog.Event{Action: "user.login", Resource: name}) != nil {
						return
					}
					mu.Lock()
					accepted = append(accepted, name)
					mu.Unlock()
				}
			}()
		}
		time.Sleep(20 * time.Millisecond) // a random moment for the end; a shorter pause tests less
		group.Add(2)
		for range 2 {
			go func() { defer group.Done(); client.Close(patience(t)) }()
		}
		group.Wait()
		for _, name := range accepted {
			if ends[name] != 1 {
				t.Fatalf("%s ended %d times", name, ends[name])
			}
		}
	}
}

func TestOrderIsKeptForEachGoroutine(t *testing.T) {
	recorder := sealogtest.New(t, sealog.Options{QueueMaxEvents: 20})
	var group sync.WaitGroup
	for worker := range 4 {
		group.Add(1)
		go func() {
			defer group.Done()
			for i := range 200 {
				event := sealog.Event{Action: "user.login", ActorID: fmt.Sprint(worker)}
				event.Resource = fmt.Sprintf("%04d", i)
				if err := recorder.Client.Enqueue(ctx, event); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	group.Wait()
	last := map[string]string{}
	for _, event := range recorder.Events() {
		if event.Resource <= last[event.ActorID] && last[event.ActorID] != "" {
			t.Fatalf("%s of %s follows %s", event.Resource, event.ActorID, last[event.ActorID])
		}
		last[event.ActorID] = event.Resource
	}
	recorder.AssertLogged(800, sealog.Event{})
}

func TestAWrongOptionIsNamed(t *testing.T) {
	for field, options := range map[string]sealog.Options{
		"MaxAttempts":    {MaxAttempts: -1},
		"BatchMaxEvents": {BatchMaxEvents: 101},
		"BatchMaxBytes":  {BatchMaxBytes: 2_097_153},
		"Timeout":        {Timeout: -1},
		"HoldAfter":      {HoldAfter: 25 * time.Hour},
		"OnFull":         {OnFull: "drop"},
		"CAFile":         {CAFile: "no such file"},
		"Receipts":       {Receipts: "no such directory/file"},
		"URL":            {URL: "http://127.0.0.1/#x"},
	} {
		options.APIKey = testKey
		_, err := sealog.New(options)
		var wrong *sealog.ValidationError
		if !errors.As(err, &wrong) || wrong.Field != field || wrong.Code != "client/invalid_option" {
			t.Errorf("%s: %v", field, err)
		}
	}
	edge := sealog.Options{APIKey: testKey, BatchMaxEvents: 100, BatchMaxBytes: 2_097_152, MaxAttempts: 1}
	if _, err := sealog.New(edge); err != nil {
		t.Error(err)
	}
}

func TestACertificateIsVerifiedAndCAFileAddsOne(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"actions":[],"total":0}`)
	}))
	server.Config.ErrorLog = slog.NewLogLogger(slog.NewTextHandler(new(bytes.Buffer), nil), slog.LevelError)
	server.StartTLS()
	defer server.Close()
	read := func(options sealog.Options) error {
		options.URL, options.APIKey, options.MaxAttempts = server.URL, testKey, 1
		client, err := sealog.New(options)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close(ctx)
		_, err = client.Actions(ctx)
		return err
	}
	var transport *sealog.TransportError
	if err := read(sealog.Options{}); !errors.As(err, &transport) || transport.Code != "client/tls" ||
		!strings.Contains(transport.Message, "CAFile") {
		t.Error(err)
	}
	file := filepath.Join(t.TempDir(), "ca.pem")
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(file, certificate, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := read(sealog.Options{CAFile: file}); err != nil {
		t.Error(err)
	}
}

func TestTheMiddlewareFillsEventsOfItsRequests(t *testing.T) {
	recorder := sealogtest.New(t, sealog.Options{TraceMetadata: true})
	proxies, err := sealog.ParseProxies("10.0.0.0/8")
	if err != nil {
		t.Fatal(err)
	}
	handler := sealog.Middleware(sealog.MiddlewareOptions{TrustedProxies: proxies,
		Actor:   func(r *http.Request) string { return r.Header.Get("X-User") },
		Session: func(*http.Request) string { return sealog.Pseudonymize("k", "cookie") },
	})(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		event := sealog.Event{Action: "document.shared"}
		if own := r.Header.Get("X-Own"); own != "" {
			event.Metadata = map[string]any{"request_id": own}
		}
		if _, err := recorder.Client.Log(r.Context(), event); err != nil {
			t.Error(err)
		}
	}))
	send := func(headers map[string]string) {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = "10.0.0.9:1234"
		for name, value := range headers {
			r.Header.Set(name, value)
		}
		handler.ServeHTTP(httptest.NewRecorder(), r)
	}
	trace := "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	send(map[string]string{"X-User": "u-17", "X-Forwarded-For": "6.6.6.6, 192.0.2.1", "X-Request-Id": "r-1",
		"Traceparent": trace})
	recorder.AssertLogged(1, sealog.Event{ActorID: "u-17", SessionID: sealog.Pseudonymize("k", "cookie"),
		Metadata: map[string]any{"ip_address": "192.0.2.1", "request_id": "r-1",
			"trace_id": "4bf92f3577b34da6a3ce929d0e0e4736", "span_id": "00f067aa0ba902b7"}})
	send(map[string]string{"X-Own": "mine", "X-Request-Id": "r-2"})
	recorder.AssertLogged(1, sealog.Event{
		Metadata: map[string]any{"request_id": "mine", "ip_address": "10.0.0.9"}})
	send(map[string]string{"X-Request-Id": "\xff" + strings.Repeat("é", 300), "Traceparent": "nonsense"})
	recorder.AssertLogged(3, sealog.Event{})
}

func TestBeforeSendLeavesTheApplicationsMapAlone(t *testing.T) {
	mode := "remove"
	recorder := sealogtest.New(t, sealog.Options{BeforeSend: func(event sealog.Event) (*sealog.Event, error) {
		if mode == "panic" {
			panic("hook")
		}
		delete(event.Metadata, "password")
		return &event, nil
	}})
	metadata := map[string]any{"password": "x", "open": 1}
	if _, err := recorder.Client.Log(ctx, sealog.Event{Action: "user.login", Metadata: metadata}); err != nil {
		t.Fatal(err)
	}
	if _, ok := recorder.Events()[0].Metadata["password"]; ok || metadata["password"] != "x" {
		t.Error(recorder.Events(), metadata)
	}
	mode = "panic"
	_, err := recorder.Client.Log(ctx, login)
	var wrong *sealog.ValidationError
	if !errors.As(err, &wrong) || wrong.Field != "BeforeSend" {
		t.Error(err)
	}
}

func TestASignalClosesTheClientAndIsThenRaisedAgain(t *testing.T) {
	recorder := sealogtest.New(t, sealog.Options{FlushInterval: time.Hour})
	seen := make(chan os.Signal, 10)
	signal.Notify(seen, syscall.SIGUSR1) // otherwise the second one ends this process, as it should
	defer signal.Stop(seen)
	stop := recorder.Client.CloseOnSignal(10*time.Second, syscall.SIGUSR1)
	defer stop()
	if err := recorder.Client.Enqueue(ctx, login); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	<-seen
	<-seen
	var closed *sealog.Closed
	if err := recorder.Client.Enqueue(ctx, login); !errors.As(err, &closed) {
		t.Error(err)
	}
	recorder.AssertLogged(1, sealog.Event{})
}

func TestAKeyOfTheCallerIsChecked(t *testing.T) {
	recorder := sealogtest.New(t, sealog.Options{})
	for _, key := range []string{"", "a b", "é", strings.Repeat("k", 256)} {
		_, err := recorder.Client.Log(ctx, login, sealog.WithKey(key))
		var wrong *sealog.ValidationError
		if !errors.As(err, &wrong) || wrong.Field != "key" {
			t.Errorf("%q: %v", key, err)
		}
	}
	if _, err := recorder.Client.Log(ctx, login, sealog.WithKey(strings.Repeat("k", 255))); err != nil {
		t.Error(err)
	}
}
