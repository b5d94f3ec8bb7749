package sealog

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestErrorsAreFoundByTypeAndByTheirSharedMembers(t *testing.T) {
	object := map[string]any{"code": "action/invalid", "message": "no", "suggestion": "user.login",
		"request_id": "req_1"}
	var err error = errorOf(422, object, 0)
	var action *ActionError
	var other *ValidationError
	var shared *Error
	if !errors.As(err, &action) || action.Suggestion != "user.login" || errors.As(err, &other) {
		t.Errorf("%T", err)
	}
	if !errors.As(err, &shared) || shared.Code != "action/invalid" || shared.Status != 422 {
		t.Errorf("%+v", shared)
	}
	for _, part := range []string{"no", "action/invalid", "req_1", "user.login"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q lacks %q", err, part)
		}
	}
	cause := &TransportError{Error{cause: context.Canceled}}
	if !errors.Is(cause, context.Canceled) {
		t.Errorf("%v hides its cause", cause)
	}
}

func TestTheTypeFollowsFromStatusAndCode(t *testing.T) {
	for _, c := range []struct {
		status     int
		code, want string
	}{
		{401, "auth/key_revoked", "*sealog.AuthError"},
		{402, "subscription/trial_expired", "*sealog.SubscriptionError"},
		{403, "framework/disabled", "*sealog.ActionError"},
		{403, "auth/not_allowed", "*sealog.ValidationError"},
		{404, "read/not_found", "*sealog.NotFound"},
		{409, "event/idempotency_key_conflict", "*sealog.IdempotencyConflict"},
		{422, "action/invalid", "*sealog.ActionError"},
		{429, "rate/limit_exceeded", "*sealog.RateLimited"},
		{503, "event/write_failed", "*sealog.ServerError"},
	} {
		if got := fmt.Sprintf("%T", errorOf(c.status, map[string]any{"code": c.code}, 0)); got != c.want {
			t.Errorf("%d %s is %s, want %s", c.status, c.code, got, c.want)
		}
	}
	e := errorOf(418, map[string]any{"code": 7.0, "message": []any{}}, 0).members()
	if !strings.Contains(e.Message, "418") {
		t.Errorf("members of another type are not tolerated: %+v", e)
	}
}
