// The driver of the behaviour suite: sdk/suite/README.md, section 2.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"strings"
	"sync"
	"time"

	sealog "github.com/sealog/sealog/sdk/go"
)

var errUnsupported = errors.New("the types of this library cannot express the value")

type step struct {
	ID          int
	Do          string
	Background  string
	Options     map[string]any
	Event       map[string]any
	Events      []map[string]any
	Key         string
	Context     map[string]any
	Traceparent string
	TimeoutMS   int `json:"timeout_ms"`
	Until       map[string]int
	Name        string
	ForMS       int `json:"for_ms"`
	Held        string
	Choice      string
	Filters     map[string]string
	Limit       int
	LogID       string `json:"log_id"`
	FromSeq     uint64 `json:"from_seq"`
	ToSeq       uint64 `json:"to_seq"`
	Texts       []string
	Text        string
	Proof       string
	VKey        string
	Heads       []string
	Value       string
	Peer        string
	Forwarded   []string
	Trusted     []string
}

type result struct {
	ok   any
	err  error
	done chan struct{}
}

type driver struct {
	client     *sealog.Client
	mu         sync.Mutex
	changed    *sync.Cond
	seen       map[string][]any
	background map[string]*result
}

func empty() map[string][]any {
	return map[string][]any{"receipts": {}, "errors": {}, "warnings": {}}
}

func (d *driver) note(kind string, value any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.seen[kind] = append(d.seen[kind], value)
	d.changed.Broadcast()
}

func (d *driver) run(s *step) (any, error) {
	ctx := context.Background()
	switch s.Do {
	case "new":
		return nil, d.new(s.Options)
	case "log":
		ctx, event, err := prepared(s, s.Event)
		if err != nil {
			return nil, err
		}
		var options []sealog.LogOption
		if s.Key != "" {
			options = append(options, sealog.WithKey(s.Key))
		}
		receipt, err := d.client.Log(ctx, event, options...)
		return receiptObject(receipt, nil), err
	case "enqueue":
		if s.Event != nil {
			s.Events = append(s.Events, s.Event)
		}
		for _, one := range s.Events {
			ctx, event, err := prepared(s, one)
			if err == nil {
				err = d.client.Enqueue(ctx, event)
			}
			if err != nil {
				return nil, err
			}
		}
		return nil, nil
	case "flush", "close":
		ctx, cancel := context.WithTimeout(ctx, time.Duration(s.TimeoutMS)*time.Millisecond)
		defer cancel()
		if s.Do == "flush" {
			return map[string]int{"pending": d.client.Flush(ctx)}, nil
		}
		return map[string]int{"pending": d.client.Close(ctx)}, nil
	case "collect":
		return d.collect(s.Until), nil
	case "is_pending":
		select {
		case <-d.background[s.Name].done:
			return map[string]bool{"pending": false}, nil
		case <-time.After(time.Duration(s.ForMS) * time.Millisecond):
			return map[string]bool{"pending": true}, nil
		}
	case "join":
		<-d.background[s.Name].done
		return d.background[s.Name].ok, d.background[s.Name].err
	case "held":
		list := []any{}
		for _, held := range d.client.Held() {
			resources := []string{}
			for _, event := range held.Events {
				resources = append(resources, event.Resource)
			}
			list = append(list, map[string]any{"id": held.ID, "reason": held.Reason, "resources": resources})
		}
		return list, nil
	case "release":
		return nil, d.client.Release(s.Held, sealog.Choice(s.Choice))
	case "audit":
		report, err := d.client.Audit(ctx)
		return map[string]any{"checked": report.Checked, "missing": orEmpty(report.Missing),
			"changed": orEmpty(report.Changed), "moved": orEmpty(report.Moved), "all_there": report.AllThere(),
			"dropped": report.Dropped, "disproved": orEmpty(report.Disproved), "proven": report.Proven,
			"unsigned": report.Unsigned, "not_yet": report.NotYet, "no_proof": report.NoProof}, err
	case "list":
		return d.list(ctx, s)
	case "get":
		event, err := d.client.Get(ctx, s.LogID)
		if err != nil {
			return nil, err
		}
		return json.RawMessage(event.Text), nil
	case "actions":
		actions, err := d.client.Actions(ctx)
		return map[string]int{"total": len(actions)}, err
	case "verify":
		return d.client.Verify(ctx, s.FromSeq, s.ToSeq)
	case "verify_events":
		var heads []sealog.Head
		for _, text := range s.Heads {
			head, err := sealog.ParseHead(text)
			if err != nil {
				return nil, err
			}
			heads = append(heads, head)
		}
		var texts [][]byte
		for _, text := range s.Texts {
			texts = append(texts, []byte(text))
		}
		return chainObject(sealog.VerifyEvents(texts, heads...))
	case "verify_proof":
		result, err := sealog.VerifyProof([]byte(s.Text), []byte(s.Proof), s.VKey)
		object := map[string]any{"holds": result.Holds}
		if !result.Holds {
			object["reason"] = result.Reason
		}
		return object, err
	case "pseudonymize":
		return sealog.Pseudonymize(s.Key, s.Value), nil
	case "client_address":
		proxies, err := sealog.ParseProxies(s.Trusted...)
		return proxies.ClientAddress(s.Peer, s.Forwarded), err
	}
	return nil, fmt.Errorf("unknown step %q", s.Do)
}

func chainObject(r sealog.ChainResult, err error) (any, error) {
	object := map[string]any{"valid": r.Valid, "checked": r.Checked, "first_seq": r.FirstSeq,
		"last_seq": r.LastSeq}
	if !r.Valid {
		object["broken_at"], object["reason"] = r.BrokenAt, r.Reason
		if r.BrokenHash != "" {
			object["broken_hash"] = r.BrokenHash
		}
	}
	return object, err
}

func orEmpty(list []string) []string {
	return append([]string{}, list...)
}

func (d *driver) new(options map[string]any) error {
	number := func(name string) int64 {
		value, _ := options[name].(float64)
		return int64(value)
	}
	span := func(name string) time.Duration { return time.Duration(number(name)) * time.Millisecond }
	text := func(name string) string {
		value, _ := options[name].(string)
		return value
	}
	isTrue := func(name string) bool { return options[name] == true }
	if options["max_attempts"] == 0.0 {
		return errUnsupported // 0 is the default
	}
	offset := span("clock_offset_ms")
	o := sealog.Options{
		URL: text("url"), APIKey: text("api_key"), OnFull: text("on_full"), Receipts: text("receipts"),
		VKey: text("vkey"), SpoolDir: text("spool_dir"), SpoolSync: isTrue("spool_sync"), SpoolMaxBytes: number("spool_max_bytes"),
		QueueMaxEvents: int(number("queue_max_events")), QueueMaxBytes: number("queue_max_bytes"),
		BatchMaxEvents: int(number("batch_max_events")), BatchMaxBytes: number("batch_max_bytes"),
		MaxAttempts: int(number("max_attempts")), CheckActions: isTrue("check_actions"),
		TraceMetadata: isTrue("trace_metadata"),
		RetryBase:     span("retry_base_ms"), RetryBudget: span("retry_budget_ms"), Timeout: span("timeout_ms"),
		FlushInterval: span("flush_interval_ms"), AdoptInterval: span("adopt_interval_ms"),
		HoldAfter: span("hold_after_ms"),
		Now:       func() time.Time { return time.Now().Add(offset) },
		OnReceipt: func(_ context.Context, receipt sealog.Receipt, event sealog.Event) {
			d.note("receipts", receiptObject(receipt, &event))
		},
		OnError: func(_ context.Context, err error, event sealog.Event) {
			d.note("errors", map[string]any{"resource": event.Resource, "error": errorObject(err)})
		},
		OnWarning: func(code, _ string) { d.note("warnings", code) },
	}
	switch text("before_send") {
	case "remove_secret":
		o.BeforeSend = func(event sealog.Event) (*sealog.Event, error) {
			delete(event.Metadata, "secret")
			return &event, nil
		}
	case "none":
		o.BeforeSend = func(sealog.Event) (*sealog.Event, error) { return nil, nil }
	case "fail":
		o.BeforeSend = func(sealog.Event) (*sealog.Event, error) { return nil, errors.New("broken") }
	}
	client, err := sealog.New(o)
	if err == nil {
		d.client = client
	}
	return err
}

func (d *driver) collect(until map[string]int) map[string][]any {
	d.mu.Lock()
	defer d.mu.Unlock()
	end := time.Now().Add(10 * time.Second)
	timer := time.AfterFunc(10*time.Second, d.changed.Broadcast)
	defer timer.Stop()
	enough := func() bool {
		for kind, count := range until {
			if len(d.seen[kind]) < count {
				return false
			}
		}
		return true
	}
	for !enough() && time.Now().Before(end) {
		d.changed.Wait()
	}
	seen := d.seen
	d.seen = empty()
	return seen
}

func (d *driver) list(ctx context.Context, s *step) (any, error) {
	filter := sealog.Filter{PageSize: s.Limit}
	members := map[string]*string{"action": &filter.Action, "actor_id": &filter.ActorID,
		"resource": &filter.Resource, "date_from": &filter.DateFrom, "date_to": &filter.DateTo}
	for name, value := range s.Filters {
		if members[name] == nil {
			return nil, errUnsupported
		}
		*members[name] = value
	}
	resources := []string{}
	var failed error
	d.client.Events(ctx, filter)(func(event *sealog.StoredEvent, err error) bool {
		if failed = err; err == nil {
			resources = append(resources, event.Resource)
		}
		return err == nil
	})
	return map[string]any{"resources": resources}, failed
}

// prepared makes an event and a context of what the step has.
func prepared(s *step, object map[string]any) (context.Context, sealog.Event, error) {
	ctx := context.Background()
	if s.Context != nil {
		known, err := eventOf(s.Context)
		if err != nil {
			return ctx, known, err
		}
		ctx = sealog.With(ctx, known)
	}
	if s.Traceparent != "" {
		ctx = sealog.WithTraceparent(ctx, s.Traceparent)
	}
	event, err := eventOf(object)
	return ctx, event, err
}

func eventOf(object map[string]any) (sealog.Event, error) {
	var event sealog.Event
	texts := map[string]*string{"action": &event.Action, "actor_id": &event.ActorID,
		"actor_type": &event.ActorType, "resource": &event.Resource, "resource_type": &event.ResourceType,
		"severity": &event.Severity, "session_id": &event.SessionID, "ts_client": &event.TSClient}
	for name, value := range object {
		value = special(value)
		if value == nil {
			continue
		}
		var ok bool
		if name == "metadata" {
			event.Metadata, ok = value.(map[string]any)
		} else if texts[name] != nil {
			*texts[name], ok = value.(string)
		}
		if !ok {
			return event, errUnsupported
		}
	}
	return event, nil
}

// special puts in the values that JSON lacks.
func special(value any) any {
	switch v := value.(type) {
	case []any:
		for i := range v {
			v[i] = special(v[i])
		}
	case map[string]any:
		switch v["$special"] {
		case "nan":
			return math.NaN()
		case "infinity":
			return math.Inf(1)
		case "date":
			return time.Date(2026, 11, 18, 1, 2, 3, 0, time.UTC)
		case "bytes":
			return []byte{0, 1}
		case "function":
			return func() {}
		case "lone_surrogate":
			return "a\xed\xa0\x80b"
		case "cycle":
			cycle := map[string]any{}
			cycle["self"] = cycle
			return cycle
		}
		for name := range v {
			v[name] = special(v[name])
		}
	}
	return value
}

func receiptObject(receipt sealog.Receipt, event *sealog.Event) map[string]any {
	object := map[string]any{"log_id": receipt.LogID, "request_id": receipt.RequestID,
		"replayed": receipt.Replayed}
	if receipt.ChainSeq != 0 {
		object["chain_seq"] = receipt.ChainSeq
	}
	if receipt.Hash != "" {
		object["hash"] = receipt.Hash
	}
	if event != nil {
		object["resource"] = event.Resource
	}
	return object
}

// The suite's names of options and hooks; a library has those of its language.
var spelling = strings.NewReplacer(
	"APIKey", "api_key", "URL", "url", "OnFull", "on_full", "CAFile", "ca_file", "SpoolDir", "spool_dir",
	"BatchMaxEvents", "batch_max_events", "BatchMaxBytes", "batch_max_bytes", "SpoolMaxBytes", "spool_max_bytes",
	"QueueMaxEvents", "queue_max_events", "QueueMaxBytes", "queue_max_bytes", "MaxAttempts", "max_attempts",
	"VKey", "vkey", "Timeout", "timeout", "BeforeSend", "before_send")

func errorObject(err error) map[string]any {
	var e *sealog.Error
	if !errors.As(err, &e) {
		return map[string]any{"type": fmt.Sprintf("%T", err), "message": err.Error()}
	}
	kind := strings.TrimPrefix(fmt.Sprintf("%T", err), "*sealog.")
	object := map[string]any{"type": kind, "code": e.Code, "message": spelling.Replace(e.Message)}
	for name, value := range map[string]string{"request_id": e.RequestID, "doc_url": e.DocURL,
		"suggestion": e.Suggestion, "field": spelling.Replace(e.Field)} {
		if value != "" {
			object[name] = value
		}
	}
	if e.Status != 0 {
		object["status"] = e.Status
	}
	if e.RetryAfter != 0 {
		object["retry_after_s"] = e.RetryAfter.Seconds()
	}
	return object
}

func main() {
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, nil)))
	d := &driver{seen: empty(), background: map[string]*result{}}
	d.changed = sync.NewCond(&d.mu)
	input, output := bufio.NewReaderSize(os.Stdin, 1<<20), json.NewEncoder(os.Stdout)
	output.SetEscapeHTML(false)
	for {
		line, err := input.ReadBytes('\n')
		if err == io.EOF {
			return
		}
		s := &step{}
		if err := json.Unmarshal(line, s); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		var ok any
		err = nil
		if s.Background == "" {
			ok, err = d.run(s)
		} else {
			r := &result{done: make(chan struct{})}
			d.background[s.Background] = r
			go func() {
				r.ok, r.err = d.run(s)
				close(r.done)
			}()
		}
		answer := map[string]any{"id": s.ID, "ok": ok}
		if err == errUnsupported {
			answer = map[string]any{"id": s.ID, "unsupported": true}
		} else if err != nil {
			answer = map[string]any{"id": s.ID, "error": errorObject(err)}
		}
		if err := output.Encode(answer); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}
