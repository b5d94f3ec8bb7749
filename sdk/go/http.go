package sealog

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

const (
	version      = "0.1.0"
	answerMax    = 64 << 20 // twice the largest page
	tlsAlert     = 0x15
	tlsHandshake = 0x16
)

// policy decides when to try again.
type policy struct {
	maxAttempts int
	base        time.Duration
	budget      time.Duration // of all waits of one call
}

// delay has full jitter: clients that failed together do not come back together.
func (p policy) delay(attempt int, retryAfter time.Duration) time.Duration {
	longest := 8 * p.base
	if attempt >= p.maxAttempts {
		longest = 60 * p.base
	}
	bound := min(longest, p.base<<min(attempt-1, 16))
	return max(time.Duration(mathrand.Int64N(int64(bound)+1)), retryAfter)
}

func newKey() string {
	var random [16]byte
	_, _ = rand.Read(random[:]) // it ends the process where it cannot read
	return "sdk_" + hex.EncodeToString(random[:])
}

type request struct {
	method, path string
	key          string // Idempotency-Key of a POST
	traceparent  string
	body         []byte
}

func postOne(event []byte, key string) *request {
	return &request{method: http.MethodPost, path: "/v1/events", key: key, body: event}
}

func postBatch(events [][]byte, key string) *request {
	size := len(`{"events":[]}`)
	for _, event := range events {
		size += len(event) + 1
	}
	body := append(make([]byte, 0, size), `{"events":[`...)
	body = append(append(body, bytes.Join(events, []byte{','})...), "]}"...)
	return &request{method: http.MethodPost, path: "/v1/events/batch", key: key, body: body}
}

func get(path string, query url.Values) *request {
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return &request{method: http.MethodGet, path: path}
}

type answer struct {
	status int
	header http.Header
	body   []byte
}

// retryAfter compares a date with the answer's own: the clock of this machine may be wrong.
func (a *answer) retryAfter() time.Duration {
	value := strings.TrimSpace(a.header.Get("Retry-After"))
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	until, err := http.ParseTime(value)
	now, dateErr := http.ParseTime(a.header.Get("Date"))
	if err != nil || dateErr != nil {
		return 0
	}
	return max(until.Sub(now), 0)
}

// object decodes the answer's JSON.
func (a *answer) object(into any) failure {
	if json.Unmarshal(a.body, into) != nil {
		return badAnswer(a.status, fmt.Sprintf("the answer with status %d is not JSON from Sealog", a.status))
	}
	return nil
}

// problemOf is the error in an answer; nil for a success.
func problemOf(a *answer) failure {
	if a.status >= 200 && a.status < 300 {
		return nil
	}
	if a.status < 400 {
		where := a.header.Get("Location")
		return &TransportError{Error{Code: "client/redirect", Status: a.status, Message: fmt.Sprintf(
			"refused a redirect to %.200q, because the API key would leak; correct the URL option", where)}}
	}
	var body struct {
		Error map[string]any `json:"error"`
	}
	if json.Unmarshal(a.body, &body) == nil {
		if code, ok := body.Error["code"].(string); ok && code != "" {
			return errorOf(a.status, body.Error, a.retryAfter())
		}
	}
	if a.status == http.StatusTooManyRequests || a.status >= 500 { // a proxy's page; the status is enough
		code := "server/unavailable"
		if a.status == http.StatusTooManyRequests {
			code = "rate/limit_exceeded"
		}
		message := fmt.Sprintf("the server answered %d", a.status)
		return errorOf(a.status, map[string]any{"code": code, "message": message}, a.retryAfter())
	}
	return badAnswer(a.status, fmt.Sprintf("the answer with status %d does not come from Sealog", a.status))
}

func badAnswer(status int, message string) failure {
	message += "; check the URL option, or ask the operator of the proxy in between"
	return &TransportError{Error{Code: "client/bad_answer", Status: status, Message: message}}
}

// isTemporary reports whether a later attempt can succeed.
func isTemporary(f failure) bool {
	e := f.members()
	switch f.(type) {
	case *TransportError:
		passing := e.Status < 300 || e.Status >= 500
		return e.Code == "client/connection" || e.Code == "client/timeout" ||
			e.Code == "client/bad_answer" && passing
	}
	return e.Status >= 500 || e.Status == http.StatusTooManyRequests ||
		e.Code == "event/idempotency_key_in_flight"
}

// isAboutTheEvent reports whether the service judged the content. Otherwise a spool keeps the events.
func isAboutTheEvent(f failure) bool {
	switch f.(type) {
	case *TransportError:
		return false
	case *IdempotencyConflict:
		return !isTemporary(f)
	}
	switch f.members().Status {
	case 400, 403, 413, 422:
		return true
	}
	return false
}

// endpoint is the service, as the options name it.
type endpoint struct {
	base      *url.URL
	key       string
	timeout   time.Duration
	transport http.RoundTripper
	policy    policy
	// Called for an answer whose ids prove that the events are stored, without the rest of the receipts.
	onIncomplete func()
}

func parseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" {
		return nil, badOption("URL", "must begin with http:// or https://, for example https://sealog.example.org")
	}
	if u.Hostname() == "" {
		return nil, badOption("URL", "has no host")
	}
	if u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
		return nil, badOption("URL", "must have no user, query or fragment; the key belongs into APIKey")
	}
	u.Path = strings.TrimRight(u.Path, "/")
	return u, nil
}

// newTransport follows no redirects (RoundTrip never does) and uses no proxy of the environment: the
// behaviour is that of the other client libraries. net/http itself replaces an idle connection that the
// server has closed, because requests have an Idempotency-Key.
func newTransport(tlsURL bool, caFile string) (*http.Transport, error) {
	dialer := &net.Dialer{}
	transport := &http.Transport{
		DialContext:         dialer.DialContext,
		DisableCompression:  true,
		MaxIdleConnsPerHost: 8,
		IdleConnTimeout:     90 * time.Second,
		TLSNextProto:        map[string]func(string, *tls.Conn) http.RoundTripper{},
	}
	if !tlsURL {
		transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return &plainConn{Conn: conn}, nil
		}
	}
	if caFile != "" {
		pem, err := os.ReadFile(caFile)
		if err != nil {
			return nil, badOption("CAFile", "cannot read it: "+err.Error())
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, badOption("CAFile", "has no certificate in PEM form")
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: pool}
	}
	return transport, nil
}

var errPortSpeaksTLS = errors.New("the port speaks TLS; use an https:// url")

// plainConn notices a TLS record in place of an HTTP answer. net/http reports only that the answer ended.
type plainConn struct {
	net.Conn
	started bool
}

func (c *plainConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && !c.started {
		c.started = true
		if p[0] == tlsAlert || p[0] == tlsHandshake {
			return 0, errPortSpeaksTLS
		}
	}
	return n, err
}

// exchange makes one attempt. The time-out covers all of it, from connecting to the last byte.
func (e *endpoint) exchange(ctx context.Context, r *request) (*answer, failure) {
	attempt, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	address := e.base.Scheme + "://" + e.base.Host + e.base.EscapedPath() + r.path
	var body io.Reader
	if r.method == http.MethodPost {
		body = bytes.NewReader(r.body)
	}
	req, err := http.NewRequestWithContext(attempt, r.method, address, body)
	if err != nil {
		return nil, &TransportError{Error{Code: "client/connection", Message: err.Error(), cause: err}}
	}
	req.Header.Set("Authorization", "Bearer "+e.key)
	req.Header.Set("User-Agent", "sealog-go/"+version+" ("+runtime.Version()+")")
	if r.method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Idempotency-Key", r.key)
	}
	if r.traceparent != "" {
		req.Header.Set("Traceparent", r.traceparent)
	}
	response, err := e.transport.RoundTrip(req)
	if err != nil {
		return nil, e.failure(ctx, err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(io.LimitReader(response.Body, answerMax+1))
	if err != nil {
		return nil, e.failure(ctx, err)
	}
	if len(content) > answerMax {
		return nil, badAnswer(response.StatusCode, "the answer is too long")
	}
	return &answer{response.StatusCode, response.Header, content}, nil
}

// failure explains a failed attempt.
func (e *endpoint) failure(ctx context.Context, err error) failure {
	problem := func(code, format string, args ...any) failure {
		return &TransportError{Error{Code: code, Message: fmt.Sprintf(format, args...), cause: err}}
	}
	var certificate *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var alert tls.AlertError
	var timeout net.Error
	switch {
	case ctx.Err() != nil:
		return canceled(ctx)
	case errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout():
		return problem("client/timeout", "%s gave no complete answer in time; see the Timeout option", e.base.Host)
	case errors.Is(err, errPortSpeaksTLS):
		return problem("client/tls", "%s: %s", e.base.Host, errPortSpeaksTLS)
	case errors.As(err, &certificate):
		return problem("client/tls", "the certificate of %s cannot be verified: %s; see the CAFile option",
			e.base.Host, certificate.Err)
	case errors.As(err, &record), errors.As(err, &alert), strings.Contains(err.Error(), "remote error: tls"):
		return problem("client/tls", "TLS with %s failed (%s); if it does not speak TLS, use an http:// url",
			e.base.Host, err)
	case strings.Contains(err.Error(), "malformed HTTP"):
		return badAnswer(0, e.base.Host+" does not speak HTTP")
	}
	return problem("client/connection", "no complete answer from %s: %s", e.base.Host, err)
}

func canceled(ctx context.Context) failure {
	message := "the context of the call ended: " + ctx.Err().Error() +
		"; a request in flight may still be stored, so use the same key to repeat it"
	return &TransportError{Error{Code: "client/canceled", Message: message, cause: ctx.Err()}}
}

// attempts sends a request until read accepts the answer or the policy is exhausted. With keep (a spool)
// there is no bound: only errors about the event, and errors that keep returns, end it.
func (e *endpoint) attempts(
	ctx context.Context, r *request, read func(*answer) failure, keep func(failure, int) error,
) error {
	waited := time.Duration(0)
	for attempt := 1; ; attempt++ {
		answer, problem := e.exchange(ctx, r)
		if problem == nil {
			problem = problemOf(answer)
		}
		if problem == nil {
			problem = read(answer)
		}
		if problem == nil {
			return nil
		}
		if keep != nil {
			if isAboutTheEvent(problem) {
				return problem
			}
			if err := keep(problem, attempt); err != nil {
				return err
			}
		} else if attempt >= e.policy.maxAttempts || !isTemporary(problem) {
			return problem
		}
		delay := e.policy.delay(attempt, problem.members().RetryAfter)
		if keep == nil && waited+delay > e.policy.budget {
			return problem
		}
		if !sleep(ctx, delay) {
			return canceled(ctx)
		}
		waited += delay
	}
}

// sleep returns false if the context ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Receipt is the service's confirmation that an event is sealed and on stable storage. Hash is empty for all
// but the last event of a batch: that one covers the others. Where a proxy removes the headers of receipts,
// ChainSeq is 0 and Hash is empty.
type Receipt struct {
	LogID     string `json:"log_id"`
	ChainSeq  uint64 `json:"chain_seq"`
	Hash      string `json:"hash"`
	RequestID string `json:"request_id"`
	Replayed  bool   `json:"-"` // the service had it already, from an earlier attempt
}

// receiptsOf reads the receipts of a batch, or of one event.
func (e *endpoint) receiptsOf(a *answer, count int) ([]Receipt, failure) {
	var body struct {
		LogID     string   `json:"log_id"`
		LogIDs    []string `json:"log_ids"`
		RequestID string   `json:"request_id"`
	}
	if problem := a.object(&body); problem != nil {
		return nil, problem
	}
	ids := body.LogIDs
	if body.LogID != "" {
		ids = []string{body.LogID}
	}
	number, _, _ := strings.Cut(a.header.Get("Sealog-Chain-Seq"), "-")
	first, err := strconv.ParseUint(number, 10, 64)
	hash := a.header.Get("Sealog-Hash")
	if a.status != http.StatusAccepted || len(ids) != count {
		return nil, badAnswer(a.status, fmt.Sprintf("the answer with status %d has no receipt", a.status))
	}
	if err != nil || hash == "" {
		e.onIncomplete()
	}
	receipts := make([]Receipt, count)
	for i, id := range ids {
		receipts[i] = Receipt{LogID: id, RequestID: body.RequestID,
			Replayed: a.header.Get("Idempotency-Replayed") == "true"}
		if err == nil {
			receipts[i].ChainSeq = first + uint64(i)
		}
	}
	receipts[count-1].Hash = hash
	return receipts, nil
}
