// Package sealogtest is for tests of applications: a client that checks events as the real one does and keeps
// them in memory.
//
//	recorder := sealogtest.New(t, sealog.Options{})
//	signIn(recorder.Client, user) // the code under test
//	recorder.AssertLogged(1, sealog.Event{Action: "user.login", ActorID: "u-17"})
package sealogtest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	sealog "github.com/sealog/sealog/sdk/go"
)

// Recorder has a Client whose events end here.
type Recorder struct {
	Client  *sealog.Client
	t       testing.TB
	service service
}

// New makes a recorder; the end of the test closes it. A test key, a short FlushInterval and a short
// RetryBase are the defaults. URL and Transport are the recorder's own.
func New(t testing.TB, options sealog.Options) *Recorder {
	t.Helper()
	r := &Recorder{t: t, service: service{answers: map[string]answer{}}}
	if options.APIKey == "" {
		options.APIKey = "at_test_" + strings.Repeat("0", 49)
	}
	if options.FlushInterval == 0 {
		options.FlushInterval = time.Millisecond
	}
	if options.RetryBase == 0 {
		options.RetryBase = time.Millisecond
	}
	options.URL, options.Transport = "http://127.0.0.1", &r.service
	client, err := sealog.New(options)
	if err != nil {
		t.Fatal(err)
	}
	r.Client = client
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		client.Close(ctx)
	})
	return r
}

// Transport is what the Client uses in place of the network, for a client with a Transport around it.
func (r *Recorder) Transport() http.RoundTripper { return &r.service }

// Events are the events in the order in which they were stored. Queued ones are sent first.
func (r *Recorder) Events() []sealog.Event {
	r.settle()
	r.service.mu.Lock()
	defer r.service.mu.Unlock()
	return append([]sealog.Event{}, r.service.events...)
}

// Clear forgets all events.
func (r *Recorder) Clear() {
	r.settle()
	r.service.mu.Lock()
	defer r.service.mu.Unlock()
	r.service.events = nil
}

// FailWith answers every request with this error, to test an outage. Status 0 answers normally again.
func (r *Recorder) FailWith(status int, code string) {
	r.service.mu.Lock()
	defer r.service.mu.Unlock()
	r.service.failure = nil
	if status != 0 {
		message := fmt.Sprintf("FailWith(%d, %q)", status, code)
		r.service.failure = &answer{status: status, body: errorBody(code, message)}
	}
}

// Logged returns the events that have the fields of wanted. Of Metadata, the given members are compared, as
// JSON.
func (r *Recorder) Logged(wanted sealog.Event) []sealog.Event {
	var found []sealog.Event
	for _, event := range r.Events() {
		if fits(object(event), object(wanted)) {
			found = append(found, event)
		}
	}
	return found
}

// AssertLogged fails the test if another number of events has the fields of wanted. An empty Event matches
// all.
func (r *Recorder) AssertLogged(count int, wanted sealog.Event) {
	r.t.Helper()
	if found := r.Logged(wanted); len(found) != count {
		text, _ := json.Marshal(object(wanted))
		lines := fmt.Sprintf("expected %d events like %s, found %d. Recorded:", count, text, len(found))
		for _, event := range r.Events() {
			text, _ := json.Marshal(event)
			lines += "\n  " + string(text)
		}
		r.t.Error(lines)
	}
}

func (r *Recorder) settle() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	r.Client.Flush(ctx)
}

// object is the event as JSON has it, so that 3, 3.0 and json.Number("3") are equal.
func object(event sealog.Event) map[string]any {
	text, err := json.Marshal(event)
	members := map[string]any{}
	if err == nil {
		_ = json.Unmarshal(text, &members)
	}
	if event.Action == "" {
		delete(members, "action")
	}
	return members
}

func fits(found, wanted any) bool {
	object, ok := wanted.(map[string]any)
	if !ok {
		a, _ := json.Marshal(found)
		b, _ := json.Marshal(wanted)
		return bytes.Equal(a, b)
	}
	members, _ := found.(map[string]any)
	for name, part := range object {
		if value, ok := members[name]; !ok || !fits(value, part) {
			return false
		}
	}
	return true
}

// service answers in place of the network.
type service struct {
	mu      sync.Mutex
	events  []sealog.Event
	stored  uint64
	answers map[string]answer // by idempotency key
	failure *answer
}

type answer struct {
	status int
	header http.Header
	body   []byte
}

func errorBody(code, message string) []byte {
	body, _ := json.Marshal(map[string]any{"error": map[string]string{"code": code, "message": message}})
	return body
}

func (s *service) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		var err error
		body, err = io.ReadAll(r.Body)
		_ = r.Body.Close()
		if err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a := answer{status: http.StatusNotFound, body: errorBody("read/not_found", "a Recorder only records")}
	if s.failure != nil {
		a = *s.failure
	} else if r.Method == http.MethodPost {
		key := r.Header.Get("Idempotency-Key")
		if _, ok := s.answers[key]; !ok {
			s.answers[key] = s.accept(r.URL.Path, body)
		}
		a = s.answers[key]
	}
	return &http.Response{StatusCode: a.status, Header: a.header.Clone(), Request: r,
		Body: io.NopCloser(bytes.NewReader(a.body)), ContentLength: int64(len(a.body)),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}, nil
}

func (s *service) accept(path string, body []byte) answer {
	batch := struct {
		Events []json.RawMessage `json:"events"`
	}{[]json.RawMessage{body}}
	single := path == "/v1/events"
	if !single {
		if err := json.Unmarshal(body, &batch); err != nil {
			return answer{status: http.StatusBadRequest, body: errorBody("validation/invalid_json", err.Error())}
		}
	}
	first := s.stored + 1
	ids := []string{}
	for _, text := range batch.Events {
		var event sealog.Event
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.UseNumber()
		if err := decoder.Decode(&event); err != nil {
			return answer{status: http.StatusBadRequest, body: errorBody("validation/invalid_json", err.Error())}
		}
		s.stored++
		s.events = append(s.events, event)
		ids = append(ids, fmt.Sprintf("%026d", s.stored))
	}
	sum := sha256.Sum256(body)
	numbers := strconv.FormatUint(first, 10)
	content := map[string]any{"request_id": "req_recorder", "log_id": ids[0]}
	if !single {
		numbers = fmt.Sprintf("%d-%d", first, s.stored)
		content = map[string]any{"request_id": "req_recorder", "log_ids": ids}
	}
	text, _ := json.Marshal(content)
	header := http.Header{"Sealog-Chain-Seq": {numbers}, "Sealog-Hash": {hex.EncodeToString(sum[:])}}
	return answer{status: http.StatusAccepted, header: header, body: text}
}
