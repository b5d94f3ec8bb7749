package sealog

import (
	"net/http"
	"testing"
	"time"
)

func TestWaitsDoubleUpToEightTimesTheBaseAndBeyondTheLastAttemptToSixty(t *testing.T) {
	p := policy{maxAttempts: 5, base: time.Second}
	bounds := map[int]time.Duration{1: 1, 2: 2, 3: 4, 4: 8, 5: 16, 6: 32, 7: 60, 40: 60}
	for attempt, bound := range bounds {
		bound *= time.Second
		shortest, longest := time.Hour, time.Duration(0)
		for range 2000 {
			wait := p.delay(attempt, 0)
			shortest, longest = min(shortest, wait), max(longest, wait)
		}
		if shortest > bound/10 || longest > bound || longest < bound*9/10 {
			t.Errorf("attempt %d: waits from %s to %s, bound %s", attempt, shortest, longest, bound)
		}
	}
	if wait := p.delay(1, 90*time.Second); wait != 90*time.Second {
		t.Errorf("waits %s, and Retry-After was 90 s", wait)
	}
}

func TestARetryDateIsMeasuredByTheAnswersOwnDate(t *testing.T) {
	const later, date = "Wed, 18 Nov 2026 10:00:07 GMT", "Wed, 18 Nov 2026 10:00:00 GMT"
	for _, c := range []struct {
		after, date string
		want        time.Duration
	}{{later, date, 7 * time.Second}, {later, "", 0}, {date, later, 0}, {"3", "", 3 * time.Second}, {"soon", date, 0}} {
		header := http.Header{"Retry-After": {c.after}}
		if c.date != "" {
			header.Set("Date", c.date)
		}
		if got := (&answer{header: header}).retryAfter(); got != c.want {
			t.Errorf("%q by %q: %s", c.after, c.date, got)
		}
	}
}
