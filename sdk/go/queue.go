package sealog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// queue sends events in the background, one batch at a time. Every event ends once, as a receipt or as an
// error.
type queue struct {
	endpoint      *endpoint
	end           func(ctx context.Context, event []byte, receipt *Receipt, problem failure)
	warnNow       func(code, message string)
	logger        *slog.Logger
	nowMS         func() int64
	flushInterval time.Duration
	adoptInterval time.Duration
	blocks        bool

	ctx    context.Context // of the sender's requests
	cancel context.CancelFunc

	mu        sync.Mutex
	store     store
	spool     *spoolStore // the store, if it is one
	warnings  [][2]string // reported after the lock is free: the callback may use the client
	reporting bool
	work      chan struct{} // wakes the sender
	news      chan struct{} // closed at each change that callers wait for
	waiting   int
	started   bool
	since     time.Time // when the oldest event came that no batch has
	urgent    int       // calls that wait for events to be sent
	put       int
	ended     int
	closing   bool
	closed    bool
	batch     *batch
	adoptAt   time.Time
}

var errStopped = errors.New("the delivery of a batch ends here; the queue's state says why")

type senderKey struct{}

// inCallback reports whether the context is the one that callbacks get. Waiting for the sender there would
// not end.
func inCallback(ctx context.Context) bool { return ctx.Value(senderKey{}) != nil }

// open starts a queue with a spool, which may have something to send.
func (q *queue) open() {
	q.ctx, q.cancel = context.WithCancel(context.WithValue(context.Background(), senderKey{}, true))
	q.work, q.news = make(chan struct{}, 1), make(chan struct{})
	q.adoptAt = time.Now().Add(q.adoptInterval)
	if q.spool == nil {
		return
	}
	q.mu.Lock()
	q.spool.adopt()
	q.countStore()
	q.start()
	q.unlock()
}

// warn may be called with the lock.
func (q *queue) warn(code, message string) {
	q.warnings = append(q.warnings, [2]string{code, message})
}

// unlock reports the warnings that have come up, in their order: one goroutine at a time reports them.
func (q *queue) unlock() {
	if !q.reporting {
		q.reporting = true
		for len(q.warnings) > 0 {
			warning := q.warnings[0]
			q.warnings = q.warnings[1:]
			q.mu.Unlock()
			q.warnNow(warning[0], warning[1])
			q.mu.Lock()
		}
		q.reporting = false
	}
	q.mu.Unlock()
}

func (q *queue) start() {
	if !q.started {
		q.started = true
		go q.run()
	}
}

func (q *queue) wake() {
	select {
	case q.work <- struct{}{}:
	default:
	}
}

func (q *queue) changed() {
	if q.waiting > 0 {
		close(q.news)
		q.news = make(chan struct{})
	}
}

// wait waits, with the lock, until the condition is true. It returns false if the context ended first.
func (q *queue) wait(ctx context.Context, condition func() bool) bool {
	q.urgent++
	q.wake()
	defer func() { q.urgent-- }()
	for !condition() {
		if ctx.Err() != nil {
			return false
		}
		news := q.news
		q.waiting++
		q.unlock()
		select {
		case <-news:
		case <-ctx.Done():
		}
		q.mu.Lock()
		q.waiting--
	}
	return true
}

// --- For the client ---

var errClosed = &Closed{Error{Code: "client/closed", Message: "the client is closed"}}

func (q *queue) enqueue(ctx context.Context, event []byte) error {
	q.mu.Lock()
	defer q.unlock()
	if q.closing {
		return errClosed
	}
	if full, never := q.store.refusal(len(event)); full != nil {
		if never || !q.blocks || inCallback(ctx) {
			return full
		}
		hasRoom := func() bool {
			full, _ := q.store.refusal(len(event))
			return q.closing || full == nil
		}
		if !q.wait(ctx, hasRoom) {
			full.cause = ctx.Err()
			return full
		}
		if q.closing {
			return errClosed
		}
	}
	if err := q.store.put(event, q.nowMS()); err != nil {
		return err
	}
	q.put++
	q.start()
	if q.since.IsZero() {
		q.since = time.Now()
		q.wake()
	} else if q.store.batchFull() {
		q.wake()
	}
	return nil
}

// flush waits until the events that are queued now have ended. It returns how many have not.
func (q *queue) flush(ctx context.Context) int {
	q.mu.Lock()
	defer q.unlock()
	target := q.put
	if !inCallback(ctx) {
		q.wait(ctx, func() bool { return q.closed || q.ended >= target && !q.isSettling() })
	}
	return max(target-q.ended, 0)
}

// isSettling reports whether the events of the batch in flight have all ended. Until the spool has settled the
// batch, they take room there.
func (q *queue) isSettling() bool { return q.batch != nil && q.batch.reported == len(q.batch.events) }

func (q *queue) close(ctx context.Context) int {
	q.mu.Lock()
	if q.closed {
		q.unlock()
		return 0
	}
	q.closing = true
	q.wake()
	q.changed()
	if !inCallback(ctx) {
		q.wait(ctx, func() bool { return q.closed || q.ended >= q.put && q.batch == nil })
	}
	if q.closed { // by another call
		q.unlock()
		return 0
	}
	pending := max(q.put-q.ended, 0)
	q.closed = true
	q.cancel()
	var left [][]byte
	if q.batch != nil && q.spool == nil {
		left = append(left, q.batch.events[q.batch.reported:]...)
	}
	left = append(left, q.store.close()...)
	q.wake()
	q.changed()
	q.unlock()
	for _, event := range left {
		q.report(event, nil, &Closed{Error{Code: "client/closed",
			Message: "the client was closed before the event was sent"}})
	}
	return pending
}

func (q *queue) isClosed() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closing
}

func (q *queue) held() []Held {
	q.mu.Lock()
	defer q.unlock()
	if q.spool == nil || q.closed {
		return []Held{}
	}
	return q.spool.listHeld()
}

func (q *queue) release(id string, choice Choice) error {
	if choice != Send && choice != Drop {
		return badOption("choice", `must be sealog.Send or sealog.Drop`)
	}
	q.mu.Lock()
	if q.closing || q.spool == nil {
		defer q.unlock()
		if q.closing {
			return errClosed
		}
		return badOption("id", "there is no spool, so no batch is held")
	}
	dropped, count, err := q.spool.release(id, choice)
	q.put += count
	q.wake()
	q.unlock()
	for _, event := range dropped {
		q.report(event, nil, &Closed{Error{Code: "client/dropped", Message: "the application dropped the event"}})
		q.countEnd()
	}
	return err
}

// --- The sender ---

func (q *queue) run() {
	for {
		q.mu.Lock()
		b := q.next()
		q.batch = b
		q.unlock()
		if b == nil {
			return
		}
		err := q.deliver(b)
		var spoolProblem *SpoolError
		if errors.As(err, &spoolProblem) { // the split cannot be recorded; the batch is tried again
			sleep(q.ctx, q.endpoint.policy.base)
		}
		q.mu.Lock()
		if spoolProblem != nil {
			q.warn(spoolProblem.Code, spoolProblem.Message)
		}
		q.batch = nil
		if !q.closed {
			q.store.finish(b)
			q.countStore()
		}
		q.changed()
		q.unlock()
	}
}

// next waits, with the lock, for a batch that is due. It returns nil if the queue is closed, or closing and
// empty.
func (q *queue) next() *batch {
	for !q.closed {
		now := time.Now()
		if q.spool != nil && !q.closing && !now.Before(q.adoptAt) {
			q.adoptAt = now.Add(q.adoptInterval)
			q.spool.adopt()
			q.countStore()
		}
		urgent := q.urgent > 0 || q.closing || q.store.batchFull() || q.store.hasLeftovers()
		due := q.since.Add(q.flushInterval)
		pause := time.Duration(-1)
		switch {
		case q.store.hasQueued() && (urgent || !q.since.IsZero() && !due.After(now)):
			b, err := q.store.take(q.nowMS())
			if err != nil {
				q.warn("client/spool", err.Error())
				pause = q.endpoint.policy.base
				break
			}
			q.since = time.Time{}
			if q.store.hasQueued() {
				q.since = now.Add(-q.flushInterval) // these have waited behind the batch: send them next
			}
			q.countStore()
			if b != nil {
				return b
			}
			continue
		case q.closing:
			return nil
		case !q.since.IsZero():
			pause = due.Sub(now)
		}
		if q.spool != nil && (pause < 0 || q.adoptInterval < pause) {
			pause = q.adoptInterval
		}
		q.pause(pause)
	}
	return nil
}

// pause waits, without the lock, for work or a time; a negative one has no end.
func (q *queue) pause(d time.Duration) {
	q.unlock()
	defer q.mu.Lock()
	if d < 0 {
		<-q.work
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-q.work:
	case <-timer.C:
	}
}

// deliver sends a batch and ends each of its events, unless the queue was closed or the batch is held.
func (q *queue) deliver(b *batch) error {
	keep := q.keepOf(b)
	if !b.isSplit {
		var receipts []Receipt
		err := q.endpoint.attempts(q.ctx, postBatch(b.events, b.key), func(a *answer) (problem failure) {
			receipts, problem = q.endpoint.receiptsOf(a, len(b.events))
			return problem
		}, keep)
		var problem failure
		switch {
		case err == nil:
			for i := range b.events {
				if err := q.finish(b, i, &receipts[i], nil); err != nil {
					return err
				}
			}
			return nil
		case !errors.As(err, &problem):
			return err
		}
		_, conflict := problem.(*IdempotencyConflict)
		if conflict || !isAboutTheEvent(problem) {
			for i := range b.events {
				if err := q.finish(b, i, nil, problem); err != nil {
					return err
				}
			}
			return nil
		}
		// Durable before the first event is sent alone: a batch that the service accepts later would be stored
		// twice.
		q.mu.Lock()
		err = errStopped
		if !q.closed {
			err = q.store.split(b)
		}
		q.unlock()
		if err != nil {
			return err
		}
	}
	for i, event := range b.events {
		if event == nil {
			continue // ended before a restart
		}
		var receipts []Receipt
		alone := postOne(event, fmt.Sprintf("%s-%d", b.key, i))
		err := q.endpoint.attempts(q.ctx, alone, func(a *answer) (problem failure) {
			receipts, problem = q.endpoint.receiptsOf(a, 1)
			return problem
		}, keep)
		var problem failure
		if err != nil && !errors.As(err, &problem) {
			return err
		}
		var receipt *Receipt
		if err == nil {
			receipt = &receipts[0]
		}
		if err := q.finish(b, i, receipt, problem); err != nil {
			return err
		}
	}
	return nil
}

// finish ends one event of the batch in flight.
func (q *queue) finish(b *batch, index int, receipt *Receipt, problem failure) error {
	q.mu.Lock()
	if q.closed {
		q.unlock()
		return errStopped
	}
	if b.ended != nil && b.ended[index] {
		q.unlock()
		return nil
	}
	b.reported = index + 1
	q.unlock()
	q.report(b.events[index], receipt, problem)
	q.mu.Lock()
	if !q.closed {
		q.store.end(b, index)
	}
	q.unlock()
	q.countEnd()
	return nil
}

// keepOf decides, with a spool, what happens after an attempt that failed through no fault of the events.
func (q *queue) keepOf(b *batch) func(failure, int) error {
	if q.spool == nil {
		return nil
	}
	warned := map[string]bool{}
	return func(problem failure, attempt int) error {
		e := problem.members()
		q.mu.Lock()
		defer q.unlock()
		if q.closed {
			return errStopped
		}
		serious := !isTemporary(problem) || attempt == q.endpoint.policy.maxAttempts
		if serious && !warned[e.Code] {
			warned[e.Code] = true
			q.warn(e.Code, fmt.Sprintf("cannot send: %s; %d events stay in the spool, trying again",
				e.Message, q.put-q.ended))
		}
		age := q.nowMS() - b.ms
		if age >= q.spool.limits.holdAfterMS || -age >= q.spool.limits.holdAfterMS {
			q.spool.hold(b, "age")
			return errStopped
		}
		return nil
	}
}

// report calls the application. A callback that panics ends nothing else.
func (q *queue) report(event []byte, receipt *Receipt, problem failure) {
	defer func() {
		if panicked := recover(); panicked != nil {
			q.logger.Error("sealog: a callback panicked; the event itself has ended as reported", "panic", panicked)
		}
	}()
	q.end(q.ctx, event, receipt, problem)
}

func (q *queue) countEnd() {
	q.mu.Lock()
	q.ended++
	q.changed()
	q.unlock()
}

// countStore includes what the spool found or held.
func (q *queue) countStore() {
	if q.spool != nil {
		q.put += q.spool.adopted
		q.ended += q.spool.newlyHeld
		q.spool.adopted, q.spool.newlyHeld = 0, 0
	}
	q.changed()
}
