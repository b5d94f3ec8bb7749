package sealog

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Options of a client. Zero values are the defaults in brackets.
type Options struct {
	URL    string // [SEALOG_URL, or http://127.0.0.1:8080]
	APIKey string // [SEALOG_API_KEY]

	// Callbacks run on the sender's goroutine, one at a time; until they return, nothing else is sent. Pass
	// their context on: with it, Enqueue returns QueueFull instead of waiting, because the sender would wait for
	// itself.
	OnReceipt func(ctx context.Context, receipt Receipt, event Event)
	OnError   func(ctx context.Context, err error, event Event) // [logged at level error]
	OnWarning func(code, message string)                        // also logged
	Logger    *slog.Logger                                      // [slog.Default()]

	// BeforeSend gets each event before it is serialised, and returns the one to send. nil or an error: Log and
	// Enqueue fail. It may change the event and its Metadata, but not what is inside of the values.
	BeforeSend func(Event) (*Event, error)

	SpoolDir       string        // a directory for queued events; they survive kill -9 [in memory]
	SpoolSync      bool          // sync each event; they survive a power failure
	SpoolMaxBytes  int64         // [268,435,456]
	QueueMaxEvents int           // [10,000]
	QueueMaxBytes  int64         // [33,554,432]
	OnFull         string        // "block" or "error" ["block"]
	BatchMaxEvents int           // [100]
	BatchMaxBytes  int64         // [1,900,000]
	FlushInterval  time.Duration // [1 s]
	AdoptInterval  time.Duration // how often to look for files that dead processes left [10 s]
	HoldAfter      time.Duration // hold a spooled batch whose first attempt is this long ago [23 h 55 min]

	MaxAttempts int           // [5]
	RetryBase   time.Duration // the longest first wait; it doubles up to 8 times [1 s]
	RetryBudget time.Duration // of all waits of one call [60 s]
	Timeout     time.Duration // of one attempt, from connecting to the last byte [30 s]

	CAFile        string            // certificates of authorities, PEM [the system's]
	Transport     http.RoundTripper // in place of the client's own; it must not follow redirects
	Receipts      string            // a file for receipts [the newest 10,000 in memory]
	VKey          string            // the key of the server's log, with which Audit checks signatures of proofs
	CheckActions  bool              // check actions against the catalog before sending
	TraceMetadata bool              // add trace_id and span_id of the traceparent to Metadata
	Now           func() time.Time  // the wall clock, for tests
}

// Client logs, reads and verifies events. One client serves all goroutines of a process; close it at the end.
type Client struct {
	options  Options
	endpoint *endpoint
	queue    *queue
	catalog  *catalog
	receipts *receipts
	isTest   bool
}

var (
	keyForm   = regexp.MustCompile(`^at_(live|test)_[0-9A-Za-z]{49}$`)
	emailForm = regexp.MustCompile(`^[^@\s]+@[^@\s]+\.[^@\s]+$`)
	traceForm = regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f-]{2,200}$`)
)

// New checks the options. With a SpoolDir it also begins to send what earlier processes left.
func New(options Options) (*Client, error) {
	o := &options
	if o.APIKey == "" {
		o.APIKey = os.Getenv("SEALOG_API_KEY")
	}
	if o.URL == "" {
		o.URL = os.Getenv("SEALOG_URL")
	}
	if o.URL == "" {
		o.URL = "http://127.0.0.1:8080"
	}
	if !keyForm.MatchString(o.APIKey) {
		return nil, badOption("APIKey", "must be at_live_ or at_test_ and 49 letters or digits; "+
			"copy the whole key, or set SEALOG_API_KEY")
	}
	if o.OnFull == "" {
		o.OnFull = "block"
	}
	if o.OnFull != "block" && o.OnFull != "error" {
		return nil, badOption("OnFull", `must be "block" or "error"`)
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if _, err := newProofs(o.VKey); err != nil {
		return nil, err
	}
	if err := o.fillNumbers(); err != nil {
		return nil, err
	}
	base, err := parseURL(o.URL)
	if err != nil {
		return nil, err
	}
	if o.Transport == nil {
		if o.Transport, err = newTransport(base.Scheme == "https", o.CAFile); err != nil {
			return nil, err
		}
		ip := net.ParseIP(base.Hostname())
		if base.Scheme == "http" && base.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback()) {
			o.Logger.Warn("sealog: URL is http://: the API key and all events cross the network readable; " +
				"use https://")
		}
	}
	c := &Client{options: options, isTest: strings.HasPrefix(o.APIKey, "at_test_")}
	c.endpoint = &endpoint{base: base, key: o.APIKey, timeout: o.Timeout, transport: o.Transport,
		policy: policy{o.MaxAttempts, o.RetryBase, o.RetryBudget},
		onIncomplete: sync.OnceFunc(func() {
			c.warn("client/incomplete_receipt", "a receipt lacks ChainSeq or Hash; "+
				"let your proxy pass Sealog-Chain-Seq and Sealog-Hash")
		})}
	if o.CheckActions {
		c.catalog = &catalog{client: c}
	}
	if c.receipts, err = openReceipts(o.Receipts, o.Logger); err != nil {
		return nil, err
	}
	nowMS := func() int64 { return o.Now().UnixMilli() }
	l := limits{batchEvents: o.BatchMaxEvents, batchBytes: o.BatchMaxBytes, queueEvents: o.QueueMaxEvents,
		queueBytes: o.QueueMaxBytes, spoolBytes: o.SpoolMaxBytes, holdAfterMS: o.HoldAfter.Milliseconds()}
	q := &queue{endpoint: c.endpoint, end: c.end, warnNow: c.warn, logger: o.Logger, nowMS: nowMS,
		flushInterval: o.FlushInterval, adoptInterval: o.AdoptInterval, blocks: o.OnFull == "block",
		store: &memoryStore{limits: l}}
	if o.SpoolDir != "" {
		if q.spool, err = openSpool(o.SpoolDir, l, o.SpoolSync, nowMS, q.warn); err != nil {
			c.receipts.close()
			return nil, err
		}
		q.store = q.spool
	}
	c.queue = q
	q.open()
	return c, nil
}

// fillNumbers puts in the defaults and checks the bounds.
func (o *Options) fillNumbers() error {
	number := func(name string, value *int64, standard, least, most int64) error {
		if *value == 0 {
			*value = standard
		}
		if *value < least || *value > most {
			return badOption(name, fmt.Sprintf("must be between %d and %d", least, most))
		}
		return nil
	}
	count := func(name string, value *int, standard, most int64) error {
		wide := int64(*value)
		err := number(name, &wide, standard, 1, most)
		*value = int(wide)
		return err
	}
	span := func(name string, value *time.Duration, standard, most time.Duration) error {
		if *value == 0 {
			*value = standard
		}
		if *value < 0 || *value > most {
			return badOption(name, fmt.Sprintf("must be between 0 and %s", most))
		}
		return nil
	}
	const day = 24 * time.Hour
	for _, err := range []error{
		count("BatchMaxEvents", &o.BatchMaxEvents, 100, 100),
		number("BatchMaxBytes", &o.BatchMaxBytes, 1_900_000, 1, 2_097_152),
		count("QueueMaxEvents", &o.QueueMaxEvents, 10_000, 1e9),
		number("QueueMaxBytes", &o.QueueMaxBytes, 33_554_432, 1, 1e12),
		number("SpoolMaxBytes", &o.SpoolMaxBytes, 268_435_456, 1, 1e13),
		count("MaxAttempts", &o.MaxAttempts, 5, 1000),
		span("RetryBase", &o.RetryBase, time.Second, time.Hour),
		span("RetryBudget", &o.RetryBudget, time.Minute, day),
		span("FlushInterval", &o.FlushInterval, time.Second, day),
		span("Timeout", &o.Timeout, 30*time.Second, day),
		span("HoldAfter", &o.HoldAfter, day-5*time.Minute, day),
		span("AdoptInterval", &o.AdoptInterval, 10*time.Second, day),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

// LogOption changes one call of Log.
type LogOption func(*request)

// WithKey uses an idempotency key of the application's own: the same key and event store it once, within 24
// hours.
func WithKey(key string) LogOption {
	return func(r *request) { r.key = key }
}

// scratch holds buffers for the text of an event while it is made.
var scratch = sync.Pool{New: func() any { return new([]byte) }}

// Log logs one event. It returns when the event is on stable storage, or with an error.
func (c *Client) Log(ctx context.Context, event Event, options ...LogOption) (Receipt, error) {
	traceparent, err := c.prepare(ctx, &event)
	if err != nil {
		return Receipt{}, err
	}
	text, err := encode(nil, &event)
	if err != nil {
		return Receipt{}, err
	}
	r := postOne(text, newKey())
	for _, option := range options {
		option(r)
	}
	isBad := func(c rune) bool { return c < '!' || c > '~' }
	if len(r.key) == 0 || len(r.key) > 255 || strings.ContainsFunc(r.key, isBad) {
		return Receipt{}, badOption("key", "must have 1 to 255 characters from ! to ~")
	}
	r.traceparent = traceparent
	if c.catalog != nil {
		if err := c.catalog.check(ctx, &event); err != nil {
			return Receipt{}, err
		}
	}
	var found []Receipt
	err = c.endpoint.attempts(ctx, r, func(a *answer) (problem failure) {
		found, problem = c.endpoint.receiptsOf(a, 1)
		return problem
	}, nil)
	if err != nil {
		return Receipt{}, err
	}
	c.receipts.add(found[0])
	return found[0], nil
}

// Enqueue queues one event and returns at once; with a spool, when the event is in a file. It ends once, in
// OnReceipt or in OnError. The context bounds only the wait for room.
func (c *Client) Enqueue(ctx context.Context, event Event) error {
	if _, err := c.prepare(ctx, &event); err != nil {
		return err
	}
	buffer := scratch.Get().(*[]byte)
	defer scratch.Put(buffer)
	text, err := encode((*buffer)[:0], &event)
	if err != nil {
		return err
	}
	if cap(text) <= 1<<16 {
		*buffer = text
	}
	if c.catalog != nil {
		if err := c.catalog.check(ctx, &event); err != nil {
			return err
		}
	}
	return c.queue.enqueue(ctx, text)
}

// Flush waits until the events that are queued now have ended, or the context has. It returns the number of
// events that have not.
func (c *Client) Flush(ctx context.Context) (pending int) { return c.queue.flush(ctx) }

// Close sends what is queued, until the context ends, and ends the client. It returns the number of events
// that were not sent: they are in the spool, or were reported to OnError.
func (c *Client) Close(ctx context.Context) (pending int) {
	pending = c.queue.close(ctx)
	if transport, ok := c.options.Transport.(*http.Transport); ok {
		transport.CloseIdleConnections()
	}
	c.receipts.close()
	return pending
}

// CloseOnSignal closes the client at one of these signals [SIGTERM and SIGINT], for at most the time-out, and
// then lets the signal end the process. It is for programs that do not handle signals themselves; others call
// Close. The returned function undoes it.
func (c *Client) CloseOnSignal(timeout time.Duration, signals ...os.Signal) (stop func()) {
	if len(signals) == 0 {
		signals = []os.Signal{syscall.SIGTERM, os.Interrupt}
	}
	arrived, done := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(arrived, signals...)
	go func() {
		select {
		case <-done:
		case received := <-arrived:
			ctx, cancel := context.WithTimeout(context.Background(), timeout)
			defer cancel()
			if pending := c.Close(ctx); pending > 0 && c.options.SpoolDir != "" {
				c.options.Logger.Warn("sealog: the process ends before all events are sent; they stay in the spool",
					"events", pending)
			}
			signal.Stop(arrived)
			if self, err := os.FindProcess(os.Getpid()); err == nil {
				_ = self.Signal(received)
			}
		}
	}()
	return sync.OnceFunc(func() { signal.Stop(arrived); close(done) })
}

// Held lists the held batches.
func (c *Client) Held() []Held { return c.queue.held() }

// Release sends or drops a held batch.
func (c *Client) Release(id string, choice Choice) error { return c.queue.release(id, choice) }

// Pseudonymize returns a stable pseudonym of a value, the same in every client library. Without the key it
// cannot be guessed. An empty key panics: the pseudonym would protect nothing.
func Pseudonymize(key, value string) string {
	if key == "" {
		panic(badOption("key", "must not be empty"))
	}
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write([]byte(value))
	return "ps_" + hex.EncodeToString(mac.Sum(nil))[:32]
}

// prepare adds the context's fields and calls BeforeSend. It returns the traceparent to send.
func (c *Client) prepare(ctx context.Context, event *Event) (string, error) {
	if c.queue.isClosed() {
		return "", errClosed
	}
	traceparent := fill(ctx, event)
	if traceparent == "" || !traceForm.MatchString(traceparent) {
		traceparent = ""
	} else if c.options.TraceMetadata {
		parts := strings.Split(traceparent, "-")
		addMetadata(event, map[string]any{"trace_id": parts[1], "span_id": parts[2]})
	}
	if c.options.BeforeSend != nil {
		if err := c.callBeforeSend(event); err != nil {
			return "", err
		}
	}
	if c.isTest && strings.IndexByte(event.ActorID, '@') > 0 && emailForm.MatchString(event.ActorID) {
		c.warn("client/personal_data",
			"actor_id looks like an e-mail address; send an internal id, or Pseudonymize it")
	}
	return traceparent, nil
}

func (c *Client) callBeforeSend(event *Event) (err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			err = invalid("BeforeSend", fmt.Sprintf("panicked with %v; the event was not logged", panicked))
		}
	}()
	given := *event
	given.Metadata = maps.Clone(event.Metadata) // the application's own map stays as it is
	result, err := c.options.BeforeSend(given)
	if err != nil {
		problem := invalid("BeforeSend", fmt.Sprintf("failed with %q; the event was not logged", err))
		problem.cause = err
		return problem
	}
	if result == nil {
		return invalid("BeforeSend", "must return the event; it returned nil")
	}
	*event = *result
	return nil
}

// end reports the end of a queued event.
func (c *Client) end(ctx context.Context, event []byte, receipt *Receipt, problem failure) {
	if receipt != nil {
		c.receipts.add(*receipt)
		if c.options.OnReceipt != nil {
			c.options.OnReceipt(ctx, *receipt, decode(event))
		}
		return
	}
	if c.options.OnError != nil {
		c.options.OnError(ctx, problem, decode(event))
		return
	}
	c.options.Logger.Error("sealog: an event was not logged; set OnError to handle it", "error", problem,
		"event", string(event[:min(len(event), 2000)]))
}

func (c *Client) warn(code, message string) {
	c.options.Logger.Warn("sealog: "+message, "code", code)
	if c.options.OnWarning != nil {
		defer func() {
			if panicked := recover(); panicked != nil {
				c.options.Logger.Error("sealog: OnWarning panicked", "panic", panicked)
			}
		}()
		c.options.OnWarning(code, message)
	}
}
