package sealogtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	sealog "github.com/sealog/sealog/sdk/go"
)

// failing notes what an assertion reports, without failing the test that checks the assertion.
type failing struct {
	testing.TB
	said string
}

func (f *failing) Error(args ...any) { f.said += fmt.Sprint(args...) }
func (f *failing) Helper()           {}

func TestARecorderKeepsWhatWasLoggedAndQueuedInOrder(t *testing.T) {
	r := New(t, sealog.Options{})
	ctx := context.Background()
	if _, err := r.Client.Log(ctx, sealog.Event{Action: "user.login", ActorID: "u-1"}); err != nil {
		t.Fatal(err)
	}
	for range 250 {
		metadata := map[string]any{"n": 3, "mfa": true}
		if err := r.Client.Enqueue(ctx, sealog.Event{Action: "user.logout", Metadata: metadata}); err != nil {
			t.Fatal(err)
		}
	}
	r.AssertLogged(1, sealog.Event{Action: "user.login", ActorID: "u-1"})
	r.AssertLogged(250, sealog.Event{Action: "user.logout", Metadata: map[string]any{"n": 3.0}})
	r.AssertLogged(251, sealog.Event{})
	r.AssertLogged(0, sealog.Event{Metadata: map[string]any{"n": 4}})
	r.Clear()
	r.AssertLogged(0, sealog.Event{})
}

func TestAnAssertionThatFailsShowsWhatWasRecorded(t *testing.T) {
	f := &failing{TB: t}
	r := New(f, sealog.Options{})
	event := sealog.Event{Action: "user.login", ActorID: "u-1"}
	if _, err := r.Client.Log(context.Background(), event); err != nil {
		t.Fatal(err)
	}
	r.AssertLogged(1, sealog.Event{ActorID: "u-2"})
	for _, part := range []string{"expected 1 events", "u-2", "found 0", `"actor_id":"u-1"`} {
		if !strings.Contains(f.said, part) {
			t.Errorf("%q lacks %q", f.said, part)
		}
	}
}

func TestARecorderRefusesWhatTheRealClientRefuses(t *testing.T) {
	r := New(t, sealog.Options{})
	event := sealog.Event{Action: "user.login", Metadata: map[string]any{"at": time.Now()}}
	err := r.Client.Enqueue(context.Background(), event)
	var wrong *sealog.ValidationError
	if !errors.As(err, &wrong) || wrong.Field != "metadata.at" {
		t.Error(err)
	}
}

func TestAnOutageIsSeenByTheApplication(t *testing.T) {
	r := New(t, sealog.Options{MaxAttempts: 2})
	r.FailWith(503, "event/write_failed")
	_, err := r.Client.Log(context.Background(), sealog.Event{Action: "user.login"})
	var down *sealog.ServerError
	if !errors.As(err, &down) || down.Code != "event/write_failed" {
		t.Error(err)
	}
	r.FailWith(0, "")
	if _, err := r.Client.Log(context.Background(), sealog.Event{Action: "user.login"}); err != nil {
		t.Error(err)
	}
	r.AssertLogged(1, sealog.Event{})
}
