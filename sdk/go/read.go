package sealog

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strconv"
	"sync"
	"time"
)

// Filter selects events. Empty members select all. Dates are YYYY-MM-DD, in UTC.
type Filter struct {
	Action, ActorID, Resource, DateFrom, DateTo string
	PageSize                                    int // [100, the most]
}

// Events reads all events that match, newest first, page by page. Use it with range (Go 1.23), or call it
// with a function that returns false to stop. After an error it stops.
//
//	for event, err := range client.Events(ctx, sealog.Filter{ActorID: "u-17"}) { … }
func (c *Client) Events(ctx context.Context, filter Filter) func(yield func(*StoredEvent, error) bool) {
	return func(yield func(*StoredEvent, error) bool) {
		query := url.Values{"limit": {"100"}}
		if filter.PageSize > 0 {
			query.Set("limit", strconv.Itoa(filter.PageSize))
		}
		for name, value := range map[string]string{"action": filter.Action, "actor_id": filter.ActorID,
			"resource": filter.Resource, "date_from": filter.DateFrom, "date_to": filter.DateTo} {
			if value != "" {
				query.Set(name, value)
			}
		}
		for {
			var events []*StoredEvent
			var cursor string
			err := c.endpoint.attempts(ctx, get("/v1/events", query), func(a *answer) (problem failure) {
				events, cursor, problem = pageOf(a)
				return problem
			}, nil)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, event := range events {
				if !yield(event, nil) {
					return
				}
			}
			if cursor == "" {
				return
			}
			query.Set("cursor", cursor)
		}
	}
}

// pageOf reads a page, and the cursor of the next one; none at the end.
func pageOf(a *answer) ([]*StoredEvent, string, failure) {
	var page struct {
		Events     []json.RawMessage `json:"events"`
		HasMore    bool              `json:"has_more"`
		NextCursor string            `json:"next_cursor"`
	}
	if problem := a.object(&page); problem != nil {
		return nil, "", problem
	}
	if page.Events == nil || page.HasMore && page.NextCursor == "" {
		return nil, "", badAnswer(a.status, "the answer is not a page of events")
	}
	events := make([]*StoredEvent, len(page.Events))
	for i, text := range page.Events {
		event, err := storedEvent(text)
		if err != nil {
			return nil, "", badAnswer(a.status, fmt.Sprintf("event %d of the page cannot be read (%s)", i, err))
		}
		events[i] = event
	}
	if !page.HasMore {
		page.NextCursor = ""
	}
	return events, page.NextCursor, nil
}

// Get reads one event. A missing one is NotFound.
func (c *Client) Get(ctx context.Context, logID string) (*StoredEvent, error) {
	if logID == "" {
		return nil, badOption("log_id", "is empty")
	}
	var event *StoredEvent
	err := c.endpoint.attempts(ctx, get("/v1/events/"+url.PathEscape(logID), nil), func(a *answer) failure {
		var err error
		if event, err = storedEvent(a.body); err != nil {
			return badAnswer(a.status, fmt.Sprintf("the answer is not an event (%s)", err))
		}
		return nil
	}, nil)
	return event, err
}

// Action is an entry of the catalog.
type Action struct {
	Action         string   `json:"action"`
	Category       string   `json:"category"`
	Description    string   `json:"description"`
	RequiredFields []string `json:"required_fields"`
	OptionalFields []string `json:"optional_fields"`
	Subscribed     bool     `json:"subscribed"`
	Frameworks     []struct {
		Framework  string `json:"framework"`
		Label      string `json:"label"`
		IsRequired bool   `json:"is_required"`
	} `json:"frameworks"`
}

// Actions reads the catalog.
func (c *Client) Actions(ctx context.Context) ([]Action, error) {
	var body struct {
		Actions []Action `json:"actions"`
	}
	err := c.endpoint.attempts(ctx, get("/v1/actions", nil), func(a *answer) failure {
		if problem := a.object(&body); problem != nil {
			return problem
		}
		if body.Actions == nil {
			return badAnswer(a.status, "the answer is not the catalog")
		}
		return nil
	}, nil)
	return body.Actions, err
}

// Verification is the service's own verdict on its chain. VerifyEvents does not rely on it.
type Verification struct {
	Valid      bool   `json:"valid"`
	Checked    int    `json:"checked"`
	FirstSeq   uint64 `json:"first_seq"`
	LastSeq    uint64 `json:"last_seq"`
	BrokenAt   uint64 `json:"broken_at,omitempty"`
	BrokenHash string `json:"broken_hash,omitempty"`
}

// Verify lets the service verify its chain, window by window, up to the first break. 0 is the begin or the
// end.
func (c *Client) Verify(ctx context.Context, fromSeq, toSeq uint64) (Verification, error) {
	var whole Verification
	for start, isFirst := max(fromSeq, 1), true; ; isFirst = false {
		query := url.Values{"from_seq": {strconv.FormatUint(start, 10)}}
		if toSeq > 0 {
			query.Set("to_seq", strconv.FormatUint(toSeq, 10))
		}
		var window struct {
			Verification
			Valid *bool `json:"valid"`
		}
		err := c.endpoint.attempts(ctx, get("/v1/events/verify", query), func(a *answer) failure {
			if problem := a.object(&window); problem != nil {
				return problem
			}
			if window.Valid == nil || window.FirstSeq < start {
				return badAnswer(a.status, "the answer is not a verification")
			}
			return nil
		}, nil)
		if err != nil {
			return Verification{}, err
		}
		if isFirst {
			whole.FirstSeq = window.FirstSeq
		}
		whole.Checked += window.Checked
		whole.Valid, whole.LastSeq = *window.Valid, window.LastSeq
		whole.BrokenAt, whole.BrokenHash = window.BrokenAt, window.BrokenHash
		// The service cuts a window to 1,000 events; a shorter one has reached the end.
		if !whole.Valid || window.LastSeq+1-window.FirstSeq < 1000 || window.LastSeq == toSeq {
			return whole, nil
		}
		start = window.LastSeq + 1
	}
}

// --- Receipts that audit themselves ---

const receiptsInMemory = 10_000

// receipts keeps the newest 10,000, or all of them in a file: one JSON object for each line.
type receipts struct {
	logger  *slog.Logger
	path    string
	mu      sync.Mutex
	file    *os.File
	memory  []Receipt // a ring
	oldest  int
	dropped int
}

func openReceipts(path string, logger *slog.Logger) (*receipts, error) {
	r := &receipts{logger: logger, path: path}
	if path != "" {
		file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
		if err != nil {
			return nil, badOption("Receipts", "cannot open the file: "+err.Error())
		}
		r.file = file
	}
	return r, nil
}

func (r *receipts) add(receipt Receipt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.path == "" {
		if len(r.memory) < receiptsInMemory {
			r.memory = append(r.memory, receipt)
			return
		}
		r.memory[r.oldest] = receipt
		r.oldest = (r.oldest + 1) % receiptsInMemory
		r.dropped++
		return
	}
	err := os.ErrClosed
	if r.file != nil {
		_, err = r.file.Write(receiptLine(receipt))
	}
	if err != nil { // The event is stored; only its audit is not possible, and Audit says so.
		r.dropped++
		r.logger.Error("sealog: cannot write a receipt; Audit will not cover it", "file", r.path, "error", err)
	}
}

func receiptLine(receipt Receipt) []byte {
	line := struct {
		LogID     string  `json:"log_id"`
		ChainSeq  *uint64 `json:"chain_seq"`
		Hash      *string `json:"hash"`
		RequestID string  `json:"request_id"`
	}{receipt.LogID, &receipt.ChainSeq, &receipt.Hash, receipt.RequestID}
	if receipt.ChainSeq == 0 {
		line.ChainSeq = nil
	}
	if receipt.Hash == "" {
		line.Hash = nil
	}
	text, _ := json.Marshal(line) // texts and a number: it cannot fail
	return append(text, '\n')
}

func (r *receipts) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.file != nil {
		_ = r.file.Close()
		r.file = nil
	}
}

// each calls visit for each receipt, oldest first, until it returns an error.
func (r *receipts) each(visit func(Receipt) error) error {
	if r.path == "" {
		r.mu.Lock()
		kept := append(append([]Receipt{}, r.memory[r.oldest:]...), r.memory[:r.oldest]...)
		r.mu.Unlock()
		for _, receipt := range kept {
			if err := visit(receipt); err != nil {
				return err
			}
		}
		return nil
	}
	file, err := os.Open(r.path)
	if err != nil {
		return badOption("Receipts", "cannot read the file: "+err.Error())
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var receipt Receipt
		if json.Unmarshal(lines.Bytes(), &receipt) != nil || receipt.LogID == "" {
			continue // a write that a crash interrupted; its event is still in the spool
		}
		if err := visit(receipt); err != nil {
			return err
		}
	}
	return lines.Err()
}

// Audit is what became of acknowledged events: lists of LogID. Dropped counts receipts that were not kept.
//
// Each event that was found as acknowledged is one of five: Disproved, if the proof that the server gave does
// not hold, which a warning explains; Proven to be in a tree that the log's key has signed; Unsigned, the same
// without a VKey to check with; NotYet in a published tree; or NoProof on this server.
type Audit struct {
	Checked                            int
	Missing, Changed, Moved, Disproved []string
	Proven, Unsigned, NotYet, NoProof  int
	Dropped                            int
}

// AllThere reports whether every receipt was found as it was given, and no proof was wrong.
func (a Audit) AllThere() bool {
	return len(a.Missing)+len(a.Changed)+len(a.Moved)+len(a.Disproved) == 0
}

// Audit reads every event back for which there is a receipt, recomputes its hash and compares. A receipt
// without a hash is covered by the event behind it in the batch, whose prev_hash leads to the hash of the
// batch's last receipt. Where the server publishes proofs, it asks for that of each event and checks it.
func (c *Client) Audit(ctx context.Context) (Audit, error) {
	var report Audit
	var before *StoredEvent // the event before, if its receipt has no hash and all else fits
	p, err := newProofs(c.options.VKey)
	if err != nil {
		return report, err
	}
	asks := !c.isTest // test chains have no trees
	err = c.receipts.each(func(receipt Receipt) error {
		report.Checked++
		event, err := c.Get(ctx, receipt.LogID)
		earlier := before
		before = nil
		var missing *NotFound
		if errors.As(err, &missing) {
			report.Missing = append(report.Missing, receipt.LogID)
			return nil
		}
		if err != nil {
			return err
		}
		if earlier != nil && earlier.ChainSeq+1 == receipt.ChainSeq && event.PrevHash != earlier.Hash {
			report.Changed = append(report.Changed, earlier.LogID)
		}
		switch {
		case !event.IsSound() || event.LogID != receipt.LogID:
			report.Changed = append(report.Changed, receipt.LogID)
			return nil
		case receipt.ChainSeq != 0 && event.ChainSeq != receipt.ChainSeq:
			report.Moved = append(report.Moved, receipt.LogID)
			return nil
		case receipt.Hash != "" && event.Hash != receipt.Hash:
			report.Changed = append(report.Changed, receipt.LogID)
			return nil
		case receipt.Hash == "":
			before = event
		}
		if !asks {
			report.NoProof++
			return nil
		}
		shows, why, err := c.prove(ctx, event, p)
		switch shows {
		case "proven":
			report.Proven++
		case "unsigned":
			report.Unsigned++
		case "not_yet":
			report.NotYet++
		case "no_proof", "absent":
			report.NoProof++
			asks = shows == "no_proof"
		case "disproved":
			report.Disproved = append(report.Disproved, receipt.LogID)
			c.warn("client/disproved", "the proof of event "+receipt.LogID+" does not hold: "+why)
		}
		return err
	})
	c.receipts.mu.Lock()
	report.Dropped = c.receipts.dropped
	c.receipts.mu.Unlock()
	return report, err
}

// --- The check before sending ---

// catalog is the actions that the service knows. It is read when an action is not in it, at most once a
// minute.
type catalog struct {
	client *Client
	mu     sync.Mutex
	known  map[string]Action
	readAt time.Time
}

func (c *catalog) check(ctx context.Context, event *Event) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	action, ok := c.known[event.Action]
	if !ok && (c.readAt.IsZero() || time.Since(c.readAt) > time.Minute) {
		c.readAt = time.Now()
		if found, err := c.client.Actions(ctx); err != nil {
			c.client.options.Logger.Warn("sealog: cannot read the catalog; actions are not checked", "error", err)
		} else {
			c.known = make(map[string]Action, len(found))
			for _, one := range found {
				c.known[one.Action] = one
			}
		}
		action, ok = c.known[event.Action]
	}
	if c.known == nil {
		return nil
	}
	if !ok {
		return &ActionError{Error{Code: "action/invalid", Field: "action", Suggestion: c.nearest(event.Action),
			Message: fmt.Sprintf("action: %.100q is not in the catalog", event.Action)}}
	}
	for _, name := range action.RequiredFields {
		if event.Metadata[name] == nil {
			return &ActionError{Error{Code: "action/missing_required_fields", Field: "metadata." + name,
				Message: fmt.Sprintf("metadata.%s: is required by %s", name, event.Action)}}
		}
	}
	return nil
}

// nearest is the action that takes the fewest edits.
func (c *catalog) nearest(name string) string {
	best, least := "", 1<<30
	for candidate := range c.known {
		if d := edits(name[:min(len(name), 64)], candidate); d < least || d == least && candidate < best {
			best, least = candidate, d
		}
	}
	return best
}

func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}
