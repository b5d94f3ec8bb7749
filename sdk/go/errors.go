package sealog

import (
	"fmt"
	"net/http"
	"strings"
	"time"
)

// Error has the members that all errors of this package share. Decide by the type or by Code; Message is for
// people. Members without a value are zero.
//
//	var e *sealog.Error
//	if errors.As(err, &e) { log.Print(e.Code, e.RequestID) }
type Error struct {
	Code       string // stable, for example "event/write_failed" or "client/timeout"
	Message    string
	Status     int    // of the HTTP answer
	RequestID  string // of the service, for its operator
	DocURL     string
	Suggestion string        // the action that was probably meant
	Field      string        // what is wrong: an option, or the path of a value in the event
	RetryAfter time.Duration // what the service asked for
	cause      error
}

func (e *Error) Error() string {
	details := []string{e.Code}
	if e.RequestID != "" {
		details = append(details, "request "+e.RequestID)
	}
	if e.Suggestion != "" {
		details = append(details, fmt.Sprintf("did you mean %q?", e.Suggestion))
	}
	if e.DocURL != "" {
		details = append(details, e.DocURL)
	}
	return "sealog: " + e.Message + " (" + strings.Join(details, ", ") + ")"
}

// Unwrap returns the cause, for example context.Canceled.
func (e *Error) Unwrap() error { return e.cause }

// As lets errors.As find the shared members of every type below.
func (e *Error) As(target any) bool {
	shared, ok := target.(**Error)
	if ok {
		*shared = e
	}
	return ok
}

func (e *Error) members() *Error { return e }

// failure is any of the types below.
type failure interface {
	error
	members() *Error
}

// shared is embedded in place of Error, whose name is that of its method. Its members are still public.
type shared = Error

type (
	// AuthError is 401: the API key is unknown, revoked or expired.
	AuthError struct{ shared }
	// SubscriptionError is 402: the trial has ended.
	SubscriptionError struct{ shared }
	// ActionError means that the action is unknown, not part of the plan, or lacks a required field.
	ActionError struct{ shared }
	// IdempotencyConflict is 409: the key was used for another event, or its first request is in flight.
	IdempotencyConflict struct{ shared }
	// RateLimited is 429. RetryAfter is what the service asked for.
	RateLimited struct{ shared }
	// NotFound is 404: no such event, or no such path.
	NotFound struct{ shared }
	// ValidationError means that the event or an option is wrong. Field names it.
	ValidationError struct{ shared }
	// ServerError is 5xx.
	ServerError struct{ shared }
	// TransportError means no answer, or one that does not come from Sealog.
	TransportError struct{ shared }
	// QueueFull means that the queue or the spool has no room. The event was not accepted.
	QueueFull struct{ shared }
	// Closed means that the client was closed before the event was sent.
	Closed struct{ shared }
	// SpoolError means that the spool cannot be written or read. The event was not accepted.
	SpoolError struct{ shared }
)

// errorOf is the error of an answer that has an error object. Members may be missing or of another type.
func errorOf(status int, object map[string]any, retryAfter time.Duration) failure {
	text := func(name string) string {
		value, _ := object[name].(string)
		return value
	}
	e := Error{Code: text("code"), Message: text("message"), Status: status, RequestID: text("request_id"),
		DocURL: text("doc_url"), Suggestion: text("suggestion"), RetryAfter: retryAfter}
	if e.Message == "" {
		e.Message = fmt.Sprintf("the service answered %d", status)
	}
	switch {
	case strings.HasPrefix(e.Code, "action/"), strings.HasPrefix(e.Code, "framework/"):
		return &ActionError{e}
	case strings.HasPrefix(e.Code, "event/idempotency_key"):
		return &IdempotencyConflict{e}
	case status == http.StatusUnauthorized:
		return &AuthError{e}
	case status == http.StatusPaymentRequired:
		return &SubscriptionError{e}
	case status == http.StatusNotFound:
		return &NotFound{e}
	case status == http.StatusTooManyRequests:
		return &RateLimited{e}
	case status >= 500:
		return &ServerError{e}
	}
	return &ValidationError{e}
}

func badOption(name, problem string) *ValidationError {
	return &ValidationError{Error{Code: "client/invalid_option", Field: name, Message: name + ": " + problem}}
}
