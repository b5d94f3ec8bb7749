package sealog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// scripted answers with what its function returns.
type scripted func(*http.Request) (status int, body string)

func (s scripted) RoundTrip(r *http.Request) (*http.Response, error) {
	status, body := s(r)
	header := http.Header{"Sealog-Chain-Seq": {"1-1"}, "Sealog-Hash": {strings.Repeat("ab", 32)}}
	return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(strings.NewReader(body))}, nil
}

func unavailable(*http.Request) (int, string) { return 503, "" }

func newClient(t *testing.T, transport http.RoundTripper, options Options) *Client {
	t.Helper()
	options.APIKey, options.Transport = "at_live_"+strings.Repeat("A", 49), transport
	options.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	if options.RetryBase == 0 {
		options.RetryBase = time.Millisecond
	}
	client, err := New(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(endedContext()) })
	return client
}

func endedContext() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func openTestSpool(t *testing.T, dir string, spoolBytes int64, nowMS func() int64) *spoolStore {
	t.Helper()
	l := limits{batchEvents: 100, batchBytes: 1_900_000, spoolBytes: spoolBytes, holdAfterMS: 86_100_000}
	s, err := openSpool(dir, l, false, nowMS, func(code, message string) { t.Log(code, message) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.close() })
	return s
}

func TestTheSpoolHasTheBytesOfItsFormat(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "spool")
	s := openTestSpool(t, dir, 1<<20, func() int64 { return 1794972528334 })
	for _, event := range []string{`{"action":"a"}`, `{"action":"b"}`} {
		if err := s.put([]byte(event), 1794972528334); err != nil {
			t.Fatal(err)
		}
	}
	b, err := s.take(1794972528335)
	if err != nil {
		t.Fatal(err)
	}
	b.key = "k"
	if err := s.writeBatch(b); err != nil {
		t.Fatal(err)
	}
	if err := s.split(b); err != nil {
		t.Fatal(err)
	}
	s.end(b, 0)
	path := s.own.path
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text = regexp.MustCompile(`(?m)^.{8} B .*sdk_.*\n`).ReplaceAll(text, nil) // the record with a random key
	// The checksums are by zlib.crc32 of Python.
	want := "0477d540 H sealog-spool 1\n" +
		"199cd1cc E 1 1794972528334 {\"action\":\"a\"}\n" +
		"5f7b4a8d E 2 1794972528334 {\"action\":\"b\"}\n" +
		"88a6d488 B 1 2 1794972528335 k\n" + "55e16d63 S 1\n" + "2a900d95 D 1 1\n"
	if got := string(text); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if name := filepath.Base(path); !spoolName.MatchString(name) || !strings.HasPrefix(name, "1794972528334-") {
		t.Error(name)
	}
	folder, _ := os.Stat(dir)
	file, _ := os.Stat(path)
	if folder.Mode().Perm() != 0o700 || file.Mode().Perm() != 0o600 {
		t.Error(folder.Mode(), file.Mode())
	}
}

func TestFilesSortByAgeWithinAMillisecondAndBehindAClockThatWasSetBack(t *testing.T) {
	dir, now := t.TempDir(), int64(1794972528334)
	var created []string
	fill := func(s *spoolStore) {
		for range 200 {
			if err := s.put([]byte(`{"action":"a","metadata":"`+strings.Repeat("x", 1000)+`"}`), now); err != nil {
				t.Fatal(err)
			}
			if name := filepath.Base(s.own.path); len(created) == 0 || created[len(created)-1] != name {
				created = append(created, name)
			}
		}
	}
	first := openTestSpool(t, dir, 1<<20, func() int64 { return now })
	first.fileBytes = 4096
	fill(first)
	first.close()
	now -= 3_600_000
	second := openTestSpool(t, dir, 1<<20, func() int64 { return now })
	second.fileBytes = 4096
	second.adopt()
	fill(second)
	if len(created) < 20 || !slices.IsSorted(created) {
		t.Errorf("%d files, in the order %v", len(created), created)
	}
}

func TestANameNeverGetsAFourteenthDigit(t *testing.T) {
	s := openTestSpool(t, t.TempDir(), 1<<20, func() int64 { return 9_999_999_999_999 })
	s.fileBytes = 0
	for range 2 {
		if err := s.put([]byte(`{"action":"a"}`), 1); err != nil {
			t.Fatal(err)
		}
	}
	if name := filepath.Base(s.own.path); len(s.journals) != 2 || !spoolName.MatchString(name) {
		t.Errorf("%d files, the last one is %s", len(s.journals), name)
	}
}

func TestARecordThatCannotBeWrittenIsAnErrorAndLeavesTheRest(t *testing.T) {
	s := openTestSpool(t, t.TempDir(), 1<<20, func() int64 { return 1794972528334 })
	if err := s.put([]byte(`{"action":"a"}`), 1); err != nil {
		t.Fatal(err)
	}
	writable := s.own.file
	readOnly, err := os.Open(s.own.path)
	if err != nil {
		t.Fatal(err)
	}
	defer readOnly.Close()
	s.own.file = readOnly
	var problem *SpoolError
	if err := s.put([]byte(`{"action":"lost"}`), 1); !errors.As(err, &problem) || s.own.end() != 2 {
		t.Error(err, s.own.end())
	}
	if b, err := s.take(1); !errors.As(err, &problem) || b != nil {
		t.Errorf("a batch without its record was handed out: %v, %v", b, err)
	}
	s.own.file = writable
	b, err := s.take(1)
	if err != nil || len(b.events) != 1 || string(b.events[0]) != `{"action":"a"}` {
		t.Error(b, err)
	}
}

func TestEventsBatchesAndSplitsAreSyncedAndSettlingIsNot(t *testing.T) {
	var synced []string
	before := datasync
	defer func() { datasync = before }()
	datasync = func(f *os.File) error {
		text, _ := io.ReadAll(io.NewSectionReader(f, 0, 1<<20))
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		synced = append(synced, strings.Fields(lines[len(lines)-1])[1])
		return nil
	}
	s := openTestSpool(t, t.TempDir(), 1<<20, func() int64 { return 1794972528334 })
	s.sync = true
	_ = s.put([]byte(`{"action":"a"}`), 1)
	b, _ := s.take(1)
	_ = s.split(b)
	s.end(b, 0)
	if got := strings.Join(synced, ""); got != "HEBS" {
		t.Error(got)
	}
}

func TestABatchThatGrowsTooOldWhileItIsRetriedIsHeld(t *testing.T) {
	var mu sync.Mutex
	now := time.Now()
	clock := func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
	warnings := make(chan string, 100)
	client := newClient(t, scripted(unavailable), Options{SpoolDir: t.TempDir(), FlushInterval: time.Millisecond,
		Now: clock, OnWarning: func(code, _ string) { warnings <- code }})
	if err := client.Enqueue(context.Background(), Event{Action: "a", Resource: "r"}); err != nil {
		t.Fatal(err)
	}
	if code := <-warnings; code != "server/unavailable" {
		t.Error(code)
	}
	mu.Lock()
	now = now.Add(24*time.Hour - 5*time.Minute)
	mu.Unlock()
	if code := <-warnings; code != "client/held" {
		t.Error(code)
	}
	held := client.Held()
	if len(held) != 1 || held[0].Reason != "age" || len(held[0].Events) != 1 ||
		held[0].Events[0].Resource != "r" {
		t.Fatalf("%+v", held)
	}
	var wrong *ValidationError
	if err := client.Release("no such id", Send); !errors.As(err, &wrong) || wrong.Field != "id" {
		t.Error(err)
	}
	if err := client.Release(held[0].ID, "perhaps"); !errors.As(err, &wrong) || wrong.Field != "choice" {
		t.Error(err)
	}
}

func TestLargeSpoolsAreSeveralFilesThatAreRemovedOneByOne(t *testing.T) {
	dir := t.TempDir()
	isUp := make(chan struct{})
	var mu sync.Mutex
	var order []string
	transport := scripted(func(r *http.Request) (int, string) {
		<-isUp
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		found := regexp.MustCompile(`"resource":"(\d+)"`).FindAllSubmatch(body, -1)
		ids := []string{}
		for _, one := range found {
			order = append(order, string(one[1]))
			ids = append(ids, `"x"`)
		}
		return 202, `{"log_ids":[` + strings.Join(ids, ",") + `],"request_id":"r"}`
	})
	client := newClient(t, transport, Options{SpoolDir: dir, SpoolMaxBytes: 1 << 20})
	files := func() int {
		names, _ := filepath.Glob(dir + "/*.spool")
		return len(names)
	}
	text := strings.Repeat("x", 1000)
	for i := range 500 {
		event := Event{Action: "a", Resource: fmt.Sprintf("%05d", i), Metadata: map[string]any{"t": text}}
		if err := client.Enqueue(context.Background(), event); err != nil {
			t.Fatal(err)
		}
	}
	if files() < 3 {
		t.Errorf("only %d files", files())
	}
	close(isUp)
	client.Flush(context.Background())
	if !slices.IsSorted(order) || len(order) != 500 {
		t.Errorf("%d events, sorted: %v", len(order), slices.IsSorted(order))
	}
	client.Close(context.Background())
	if files() != 0 {
		t.Errorf("%d files are left", files())
	}
}

func TestASpoolThatIsFullBlocksUntilThereIsRoomAndNeverGrowsBeyond(t *testing.T) {
	dir := t.TempDir()
	const limit = 60_000
	client := newClient(t, scripted(unavailable), Options{SpoolDir: dir, SpoolMaxBytes: limit, OnFull: "error"})
	event := Event{Action: "a", Metadata: map[string]any{"t": strings.Repeat("x", 500)}}
	var full *QueueFull
	for {
		if err := client.Enqueue(context.Background(), event); err != nil {
			if !errors.As(err, &full) || full.Code != "client/spool_full" {
				t.Error(err)
			}
			break
		}
	}
	total := int64(0)
	names, _ := filepath.Glob(dir + "/*.spool")
	for _, name := range names {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		total += info.Size()
	}
	if total < limit-2000 || total > limit+1000 { // records of batches come on top
		t.Errorf("%d bytes", total)
	}
}

func TestReceiptsInMemoryAreTheNewestTenThousand(t *testing.T) {
	r, err := openReceipts("", slog.Default())
	if err != nil {
		t.Fatal(err)
	}
	for i := range receiptsInMemory + 5 {
		r.add(Receipt{ChainSeq: uint64(i)})
	}
	next := uint64(5)
	_ = r.each(func(receipt Receipt) error {
		if receipt.ChainSeq != next {
			t.Fatalf("%d in place of %d", receipt.ChainSeq, next)
		}
		next++
		return nil
	})
	if next != receiptsInMemory+5 || r.dropped != 5 {
		t.Error(next, r.dropped)
	}
}

func TestAnInterruptedLineInTheFileOfReceiptsIsSkipped(t *testing.T) {
	path := filepath.Join(t.TempDir(), "receipts")
	r, err := openReceipts(path, slog.Default())
	if err != nil {
		t.Fatal(err)
	}
	r.add(Receipt{LogID: "one", ChainSeq: 1, RequestID: "req"})
	r.add(Receipt{LogID: "two", ChainSeq: 2, Hash: "ab", RequestID: "req", Replayed: true})
	text, _ := os.ReadFile(path)
	want := `{"log_id":"one","chain_seq":1,"hash":null,"request_id":"req"}` + "\n" +
		`{"log_id":"two","chain_seq":2,"hash":"ab","request_id":"req"}` + "\n"
	if string(text) != want {
		t.Errorf("%s", text)
	}
	if err := os.WriteFile(path, append(bytes.Clone(text), `{"log_id":"th`...), 0o600); err != nil {
		t.Fatal(err)
	}
	var ids []string
	err = r.each(func(receipt Receipt) error { ids = append(ids, receipt.LogID); return nil })
	if err != nil || len(ids) != 2 {
		t.Error(ids, err)
	}
}

func TestMemoryOfSentEventsIsFreed(t *testing.T) {
	m := &memoryStore{limits: limits{batchEvents: 100,
		batchBytes: 1 << 20, queueEvents: 1000, queueBytes: 1 << 20}}
	for round := range 50 {
		for range 100 {
			_ = m.put([]byte("{}"), 0)
		}
		b, _ := m.take(0)
		for i := range b.events {
			m.end(b, i)
		}
		if m.count != 0 || m.bytes != 0 || m.queuedBytes != 0 || cap(m.queue) > 1000 {
			t.Fatalf("round %d: %d events, %d bytes, room for %d", round, m.count, m.bytes, cap(m.queue))
		}
	}
}

func TestABatchIsRepeatedWholeButItsSettledEventsEndOnlyOnce(t *testing.T) {
	dir, now := t.TempDir(), time.Now().UnixMilli()
	s := openTestSpool(t, dir, 1<<20, func() int64 { return now })
	_ = s.put([]byte(`{"action":"a","resource":"1"}`), now)
	_ = s.put([]byte(`{"action":"a","resource":"2"}`), now)
	// As a library writes that settles events one by one.
	for _, record := range []string{fmt.Sprintf("B 1 2 %d kept", now), "D 1 1"} {
		if err := s.own.append([]byte(record), false); err != nil {
			t.Fatal(err)
		}
	}
	s.close()
	sent, ends := make(chan string, 10), make(chan string, 10)
	note := func(_ context.Context, _ Receipt, event Event) { ends <- event.Resource }
	client := newClient(t, scripted(func(r *http.Request) (int, string) {
		body, _ := io.ReadAll(r.Body)
		sent <- r.Header.Get("Idempotency-Key") + " " + string(body)
		return 202, `{"log_ids":["x","y"],"request_id":"r"}`
	}), Options{SpoolDir: dir, OnReceipt: note})
	client.Close(context.Background())
	want := `kept {"events":[{"action":"a","resource":"1"},{"action":"a","resource":"2"}]}`
	if got := <-sent; got != want || len(sent) > 0 {
		t.Error(got)
	}
	if got := <-ends; got != "2" || len(ends) > 0 {
		t.Error(got, len(ends))
	}
}

func TestARecordBehindATornTailBeginsALineOfItsOwn(t *testing.T) {
	dir, now := t.TempDir(), time.Now().UnixMilli()
	s := openTestSpool(t, dir, 1<<20, func() int64 { return now })
	_ = s.put([]byte(`{"action":"a"}`), now)
	path := s.own.path
	s.close()
	whole, _ := os.ReadFile(path)
	if err := os.WriteFile(path, append(bytes.Clone(whole), "deadbeef E 2 17"...), 0o600); err != nil {
		t.Fatal(err)
	}
	again := openTestSpool(t, dir, 1<<20, func() int64 { return now })
	again.adopt()
	b, err := again.take(now)
	if err != nil || b == nil {
		t.Fatal(b, err)
	}
	text, _ := os.ReadFile(path)
	record := fmt.Sprintf("B 1 1 %d %s\n", now, b.key)
	if rest, ok := strings.CutPrefix(string(text), string(whole)); !ok || len(rest) < 9 || rest[9:] != record {
		t.Errorf("%q", text)
	}
	if damaged, _ := os.ReadFile(path + ".damaged"); string(damaged) != "deadbeef E 2 17" {
		t.Errorf("%q", damaged)
	}
}

func TestClosingWaitsUntilTheSpoolHasSettledTheLastBatch(t *testing.T) {
	q := newClient(t, scripted(unavailable), Options{SpoolDir: t.TempDir()}).queue
	settle := func(b *batch) {
		q.mu.Lock()
		q.batch = b
		q.changed()
		q.unlock()
	}
	settle(&batch{}) // all of its events have their receipts, and the spool has not heard of it
	closed := make(chan int)
	go func() { closed <- q.close(context.Background()) }()
	select {
	case <-closed:
		t.Fatal("closed too early")
	case <-time.After(20 * time.Millisecond):
	}
	settle(nil)
	<-closed
}

func TestAFlushWaitsUntilTheSpoolHasSettledTheLastBatch(t *testing.T) {
	q := newClient(t, scripted(unavailable), Options{SpoolDir: t.TempDir()}).queue
	settle := func(b *batch) {
		q.mu.Lock()
		q.batch = b
		q.changed()
		q.unlock()
	}
	settle(&batch{})
	flushed := make(chan int)
	go func() { flushed <- q.flush(context.Background()) }()
	select {
	case <-flushed:
		t.Fatal("the events still take room")
	case <-time.After(20 * time.Millisecond):
	}
	settle(&batch{events: [][]byte{{}}}) // of events that came later: nobody waits for them
	<-flushed
	settle(nil)
}
