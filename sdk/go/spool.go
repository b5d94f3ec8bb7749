package sealog

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// The queue's events, in memory or in a spool directory: sdk/suite/README.md, section 5, has the format. Both
// stores hand out one batch at a time. The queue's lock guards them; a spool is locked against other
// processes.

type limits struct {
	batchEvents, queueEvents           int
	batchBytes, queueBytes, spoolBytes int64
	holdAfterMS                        int64
}

type store interface {
	// refusal returns why there is no room for an event of this size, and whether there never will be.
	refusal(size int) (full *QueueFull, never bool)
	put(event []byte, nowMS int64) error
	batchFull() bool
	// hasLeftovers reports whether there is something to send that need not wait for the interval.
	hasLeftovers() bool
	hasQueued() bool
	// take returns nil if everything was held or settled.
	take(nowMS int64) (*batch, error)
	// split makes the decision durable to send the events one by one.
	split(*batch) error
	end(b *batch, index int)
	finish(*batch)
	// close returns the events that end with the store.
	close() [][]byte
}

// batch is events that are sent under one key.
type batch struct {
	key      string
	events   [][]byte // nil in place of an event that ended before a restart, if split
	isSplit  bool
	reported int // events whose callback has begun; they end in order

	// Of a spool:
	journal  *journal
	numbers  []int64
	ended    []bool
	ms       int64 // of the first attempt; 0: never sent
	released bool
	isHeld   bool
}

func (b *batch) left() (numbers []int64) {
	for i, number := range b.numbers {
		if !b.ended[i] {
			numbers = append(numbers, number)
		}
	}
	return numbers
}

func full(what, option string, limit int64) *QueueFull {
	return &QueueFull{Error{Code: "client/" + what + "_full", Message: fmt.Sprintf(
		"the %s is full: %s is %d; raise it, or wait for the service", what, option, limit)}}
}

func neverFits(what, option string, limit int64) *QueueFull {
	return &QueueFull{Error{Code: "client/" + what + "_full", Message: fmt.Sprintf(
		"the event is larger than %s (%d); raise it", option, limit)}}
}

// memoryStore is a queue that ends with its process.
type memoryStore struct {
	limits      limits
	queue       [][]byte
	queuedBytes int64 // not yet in a batch
	count       int   // until they ended
	bytes       int64
}

func (m *memoryStore) refusal(size int) (*QueueFull, bool) {
	switch {
	case int64(size) > m.limits.queueBytes:
		return neverFits("queue", "QueueMaxBytes", m.limits.queueBytes), true
	case m.count >= m.limits.queueEvents:
		return full("queue", "QueueMaxEvents", int64(m.limits.queueEvents)), false
	case m.bytes+int64(size) > m.limits.queueBytes:
		return full("queue", "QueueMaxBytes", m.limits.queueBytes), false
	}
	return nil, false
}

func (m *memoryStore) put(event []byte, _ int64) error {
	m.queue = append(m.queue, bytes.Clone(event))
	m.queuedBytes += int64(len(event)) + 1
	m.count++
	m.bytes += int64(len(event))
	return nil
}

func (m *memoryStore) batchFull() bool {
	return len(m.queue) >= m.limits.batchEvents || m.queuedBytes >= m.limits.batchBytes
}

func (m *memoryStore) hasLeftovers() bool { return false }
func (m *memoryStore) hasQueued() bool    { return len(m.queue) > 0 }

func (m *memoryStore) take(int64) (*batch, error) {
	room, n := m.limits.batchBytes-int64(len(`{"events":[]}`)), 0
	for n < len(m.queue) && n < m.limits.batchEvents {
		room -= int64(len(m.queue[n])) + 1
		if room < 0 && n > 0 {
			break
		}
		m.queuedBytes -= int64(len(m.queue[n])) + 1
		n++
	}
	if n == 0 {
		return nil, nil
	}
	b := &batch{key: newKey(), events: slices.Clone(m.queue[:n])}
	clear(m.queue[:n]) // the array behind the slice would keep the events alive
	m.queue = m.queue[n:]
	return b, nil
}

func (m *memoryStore) split(b *batch) error { b.isSplit = true; return nil }
func (m *memoryStore) finish(*batch)        {}

func (m *memoryStore) end(b *batch, index int) {
	m.count--
	m.bytes -= int64(len(b.events[index]))
}

func (m *memoryStore) close() [][]byte {
	left := m.queue
	m.queue = nil
	return left
}

// --- One file ---

const (
	spoolHeader    = "H sealog-spool 1"
	spoolFileBytes = 8 << 20
	nameMSMax      = 9_999_999_999_999 // a name has room for 13 digits
	lengthBits     = 20                // of a record; an event has at most 18
)

var datasync = (*os.File).Sync

// journal is one spool file, locked by this process. Memory holds eight bytes for each of its events.
type journal struct {
	path    string
	file    *os.File
	size    int64
	base    int64    // number of the event whose record is records[0]
	records []uint64 // offset and length of each record; 0: damaged
	settled map[int64]bool
	done    int64 // every event below is settled
	cursor  int64 // every event below is in a batch, or was
	suspect int64 // events below may have been sent under a key that was lost
	batches []*batch
	line    []byte
}

func newJournal(path string, file *os.File) *journal {
	return &journal{path: path, file: file, base: 1, done: 1, cursor: 1, settled: map[int64]bool{}}
}

func (j *journal) end() int64      { return j.base + int64(len(j.records)) }
func (j *journal) isSettled() bool { return j.done >= j.end() }

// append writes a record whole or not at all.
func (j *journal) append(content []byte, sync bool) error {
	j.line = append(append(append(j.line[:0], "00000000 "...), content...), '\n')
	return j.writeLine(sync)
}

// writeLine fills in the checksum of the line and writes it.
func (j *journal) writeLine(sync bool) error {
	hexCRC(j.line[:8], j.line[9:len(j.line)-1])
	_, err := j.file.Write(j.line)
	if err == nil && sync {
		err = datasync(j.file)
	}
	if err != nil {
		_ = j.file.Truncate(j.size) // if this fails, too, the next reader cuts it
		return spoolError("cannot write the spool (SpoolDir): " + err.Error())
	}
	j.size += int64(len(j.line))
	if cap(j.line) > 1<<16 {
		j.line = nil
	}
	return nil
}

func hexCRC(dst, content []byte) {
	sum := crc32.ChecksumIEEE(content)
	hex.Encode(dst, []byte{byte(sum >> 24), byte(sum >> 16), byte(sum >> 8), byte(sum)})
}

func spoolError(message string) *SpoolError {
	return &SpoolError{Error{Code: "client/spool", Message: message}}
}

func (j *journal) add(event []byte, nowMS int64, sync bool) error {
	offset := j.size
	j.line = append(j.line[:0], "00000000 E "...)
	j.line = append(strconv.AppendInt(j.line, j.end(), 10), ' ')
	j.line = append(strconv.AppendInt(j.line, nowMS, 10), ' ')
	j.line = append(append(j.line, event...), '\n')
	length := len(j.line)
	if err := j.writeLine(sync); err != nil {
		return err
	}
	j.records = append(j.records, uint64(offset)<<lengthBits|uint64(length))
	return nil
}

// recordBytes is the length of an event's record: the event and a little more.
func (j *journal) recordBytes(number int64) int64 {
	return int64(j.records[number-j.base] & (1<<lengthBits - 1))
}

// eventBytes is the length of the event itself: the record without checksum, kind, number, time and line
// feed.
func (j *journal) eventBytes(number int64) int64 {
	return j.recordBytes(number) - int64(len("00000000 E   \n")+len(strconv.FormatInt(number, 10))+13)
}

// read returns the text of an event; nil if it cannot be read.
func (j *journal) read(number int64) []byte {
	if number < j.base || number >= j.end() || j.records[number-j.base] == 0 {
		return nil
	}
	line := make([]byte, j.recordBytes(number))
	if _, err := j.file.ReadAt(line, int64(j.records[number-j.base]>>lengthBits)); err != nil {
		return nil
	}
	content, ok := contentOf(line)
	if !ok {
		return nil
	}
	parts := bytes.SplitN(content, []byte{' '}, 4)
	if len(parts) != 4 {
		return nil
	}
	return parts[3]
}

// contentOf checks the line's checksum.
func contentOf(line []byte) ([]byte, bool) {
	if len(line) < 10 || line[8] != ' ' {
		return nil, false
	}
	var sum [8]byte
	content := line[9 : len(line)-1]
	hexCRC(sum[:], content)
	return content, string(sum[:]) == string(line[:8])
}

// isOpen reports whether the event exists and is not settled.
func (j *journal) isOpen(number int64) bool {
	return number >= j.done && number < j.end() && j.records[number-j.base] != 0 && !j.settled[number]
}

func (j *journal) settle(first, count int64) {
	for number := max(first, j.done); number < min(first+count, j.end()); number++ {
		j.settled[number] = true
	}
	for j.done < j.end() && (j.settled[j.done] || j.records[j.done-j.base] == 0) {
		delete(j.settled, j.done)
		j.done++
	}
}

// cut drops all records of a file whose events are settled.
func (j *journal) cut() {
	header := int64(len(spoolHeader) + 10)
	if j.file.Truncate(header) != nil {
		return // it stays as it is, settled
	}
	j.base, j.size, j.records = j.end(), header, nil
	j.done, j.cursor = j.base, j.base
}

// load reads the file. It returns false if the file is of another version.
func (j *journal) load(warn func(code, message string)) (bool, error) {
	var damaged []byte
	reader := bufio.NewReaderSize(io.NewSectionReader(j.file, 0, 1<<62), 1<<16)
	for {
		line, err := reader.ReadBytes('\n')
		if err == io.EOF {
			if len(line) > 0 { // an interrupted write
				damaged = append(damaged, line...)
				if err := j.file.Truncate(j.size); err != nil {
					return false, err
				}
			}
			break
		}
		if err != nil {
			return false, err
		}
		offset := j.size
		j.size += int64(len(line))
		content, sound := contentOf(line)
		if offset == 0 && sound && string(content) != spoolHeader {
			warn("client/spool_version", j.path+" is a spool of another version; it is not used")
			return false, nil
		}
		if !sound || !j.apply(content, offset, len(line)) {
			damaged = append(damaged, line...)
			j.suspect = j.end()
		}
	}
	j.batches = slices.DeleteFunc(j.batches, func(b *batch) bool { return len(b.left()) == 0 })
	for _, b := range j.batches {
		j.cursor = max(j.cursor, b.numbers[len(b.numbers)-1]+1)
	}
	if len(damaged) > 0 {
		copied, err := os.OpenFile(j.path+".damaged", os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
		if err == nil {
			_, err = copied.Write(damaged)
			_ = copied.Close()
		}
		message := fmt.Sprintf("%d bytes of %s are damaged; copied to %s.damaged", len(damaged), j.path, j.path)
		if err != nil {
			message = fmt.Sprintf("%d bytes of %s are damaged, and cannot be copied: %s", len(damaged), j.path, err)
		}
		warn("client/spool_damaged", message)
	}
	return true, nil
}

// apply returns false for a record that has no meaning.
func (j *journal) apply(content []byte, offset int64, length int) bool {
	kind, rest, _ := strings.Cut(string(content), " ")
	if kind == "E" {
		rest = rest[:min(len(rest), 48)] // the numbers are enough
	}
	parts := strings.SplitN(rest, " ", 4)
	number := func(i int) int64 {
		if i >= len(parts) {
			return -1
		}
		n, err := strconv.ParseInt(parts[i], 10, 62)
		if err != nil {
			return -1
		}
		return n
	}
	first, count := number(0), number(1)
	switch {
	case kind == "H":
		return true
	case kind == "E" && first > 0 && count >= 0 && len(parts) > 2 && length < 1<<lengthBits:
		if len(j.records) == 0 {
			j.base, j.done, j.cursor = first, first, first
		}
		if first < j.end() || first > j.end()+1<<24 {
			return false
		}
		j.records = append(j.records, make([]uint64, first-j.end())...) // those in between were damaged
		j.records = append(j.records, uint64(offset)<<lengthBits|uint64(length))
	case kind == "B" && first > 0 && count > 0 && number(2) >= 0 && len(parts) == 4:
		b := &batch{key: parts[3], journal: j, ms: max(number(2), 1)}
		for n := first; n < min(first+count, j.end()); n++ {
			if j.isOpen(n) {
				b.numbers = append(b.numbers, n)
			}
		}
		if len(b.numbers) == 0 {
			return true
		}
		b.ended = make([]bool, len(b.numbers))
		j.batches = slices.DeleteFunc(j.batches, func(earlier *batch) bool {
			return slices.ContainsFunc(earlier.left(), func(n int64) bool { return slices.Contains(b.numbers, n) })
		})
		j.batches = append(j.batches, b)
	case kind == "S" && first > 0:
		for _, b := range j.batches {
			b.isSplit = b.isSplit || b.numbers[0] == first
		}
	case kind == "D" && first > 0 && count > 0:
		j.settle(first, count)
		for _, b := range j.batches {
			for i, n := range b.numbers {
				b.ended[i] = b.ended[i] || n >= first && n < first+count
			}
		}
	default:
		return false
	}
	return true
}

// loadEvents reads the events of a batch. Those that ended are nil if the batch is split: only the others are
// sent.
func (b *batch) loadEvents() bool {
	b.events = make([][]byte, len(b.numbers))
	for i, number := range b.numbers {
		if b.isSplit && b.ended[i] {
			continue
		}
		if b.events[i] = b.journal.read(number); b.events[i] == nil {
			return false
		}
	}
	return true
}

// --- The directory ---

var spoolName = regexp.MustCompile(`^\d{13}-[0-9a-f]{16}\.spool$`)

// spoolStore is a queue that outlives its process.
type spoolStore struct {
	dir          string
	limits       limits
	sync         bool
	nowMS        func() int64
	warn         func(code, message string)
	fileBytes    int64
	journals     []*journal // oldest first; events are added to own
	own          *journal
	held         map[string]*heldBatch
	ignored      map[string]bool // files of another version
	newestMS     int64           // in the names of files that this process has held
	queuedEvents int             // of own, not yet in a batch
	queuedBytes  int64
	// Events that were taken over or held since the queue last asked.
	adopted, newlyHeld int
}

type heldBatch struct {
	*batch
	reason string
}

func openSpool(
	dir string, l limits, sync bool, nowMS func() int64, warn func(code, message string),
) (*spoolStore, error) {
	s := &spoolStore{dir: dir, limits: l, sync: sync, nowMS: nowMS, warn: warn, held: map[string]*heldBatch{},
		ignored: map[string]bool{}, fileBytes: max(min(spoolFileBytes, l.spoolBytes/8), 4096)}
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		_, err = os.ReadDir(dir)
	}
	if err != nil {
		return nil, spoolError(fmt.Sprintf("SpoolDir: cannot use %s: %s", dir, err))
	}
	return s, nil
}

// adopt takes over the files that dead processes left.
func (s *spoolStore) adopt() {
	entries, err := os.ReadDir(s.dir) // sorted by name, which is by age
	if err != nil {
		return // the next interval tries again
	}
	for _, entry := range entries {
		name := entry.Name()
		isOurs := func(j *journal) bool { return filepath.Base(j.path) == name }
		if !spoolName.MatchString(name) || s.ignored[name] || slices.ContainsFunc(s.journals, isOurs) {
			continue
		}
		j := s.open(filepath.Join(s.dir, name))
		if j == nil {
			continue
		}
		if j.isSettled() {
			s.remove(j)
			continue
		}
		if ms, err := strconv.ParseInt(name[:13], 10, 64); err == nil {
			s.newestMS = max(s.newestMS, ms)
		}
		place := len(s.journals)
		if s.own != nil {
			place = slices.Index(s.journals, s.own)
		}
		s.journals = slices.Insert(s.journals, place, j)
		for n := j.done; n < j.end(); n++ {
			if j.isOpen(n) {
				s.adopted++
			}
		}
	}
}

// open returns nil if another process holds the file, or has just finished it.
func (s *spoolStore) open(path string) *journal {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND, 0)
	if err != nil {
		return nil
	}
	if lock(file) == nil {
		held, err := file.Stat()
		there, pathErr := os.Stat(path)
		if err == nil && pathErr == nil && os.SameFile(held, there) {
			j := newJournal(path, file)
			usable, err := j.load(s.warn)
			if err == nil && usable {
				return j
			}
			if err == nil {
				s.ignored[filepath.Base(path)] = true
			}
		}
	}
	_ = file.Close()
	return nil
}

func (s *spoolStore) create() (*journal, error) {
	var random [8]byte
	_, _ = rand.Read(random[:])
	// A process that takes the files over sends them by name. Two files of one millisecond, or of a clock that
	// was set back, must not change places.
	s.newestMS = min(max(s.nowMS(), s.newestMS+1), nameMSMax)
	path := filepath.Join(s.dir, fmt.Sprintf("%013d-%x.spool", s.newestMS, random))
	fail := func(err error) (*journal, error) {
		return nil, spoolError(fmt.Sprintf("SpoolDir: cannot create %s: %s", path, err))
	}
	file, err := os.OpenFile(path+".new", os.O_RDWR|os.O_APPEND|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fail(err)
	}
	j := newJournal(path, file)
	if err = lock(file); err == nil {
		if err = j.append([]byte(spoolHeader), s.sync); err == nil {
			err = os.Rename(path+".new", path)
		}
	}
	if err == nil && s.sync {
		err = syncDir(s.dir)
	}
	if err != nil {
		_ = os.Remove(path + ".new")
		_ = file.Close()
		return fail(err)
	}
	return j, nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

func (s *spoolStore) remove(j *journal) {
	_ = os.Remove(j.path) // if it stays, it is settled, and the next process removes it
	_ = j.file.Close()
	s.journals = slices.DeleteFunc(s.journals, func(other *journal) bool { return other == j })
	if s.own == j {
		s.own = nil
	}
}

func (s *spoolStore) tidy(j *journal) {
	switch {
	case !j.isSettled():
	case j != s.own:
		s.remove(j)
	case j.size > 1<<16:
		j.cut()
	}
}

func (s *spoolStore) totalBytes() (total int64) {
	for _, j := range s.journals {
		total += j.size
	}
	return total
}

func (s *spoolStore) refusal(size int) (*QueueFull, bool) {
	limit, record := s.limits.spoolBytes, int64(size)+64
	if record > limit {
		return neverFits("spool", "SpoolMaxBytes", limit), true
	}
	if s.totalBytes()+record > limit && s.own != nil && s.own.isSettled() {
		s.own.cut()
	}
	if s.totalBytes()+record > limit {
		return full("spool", "SpoolMaxBytes", limit), false
	}
	return nil, false
}

func (s *spoolStore) put(event []byte, nowMS int64) error {
	if s.own == nil || s.own.size > s.fileBytes && !s.own.isSettled() {
		j, err := s.create()
		if err != nil {
			return err
		}
		s.own, s.queuedEvents, s.queuedBytes = j, 0, 0
		s.journals = append(s.journals, j)
	}
	if err := s.own.add(event, nowMS, s.sync); err != nil {
		return err
	}
	s.queuedEvents++
	s.queuedBytes += s.own.recordBytes(s.own.end() - 1)
	return nil
}

func (s *spoolStore) batchFull() bool {
	return s.queuedEvents >= s.limits.batchEvents || s.queuedBytes >= s.limits.batchBytes
}

func (s *spoolStore) hasLeftovers() bool {
	return slices.ContainsFunc(s.journals, func(j *journal) bool {
		return len(j.batches) > 0 || j != s.own && j.cursor < j.end()
	})
}

func (s *spoolStore) hasQueued() bool { return s.hasLeftovers() || s.queuedEvents > 0 }

func (s *spoolStore) take(nowMS int64) (*batch, error) {
	for _, j := range slices.Clone(s.journals) {
		for {
			var b *batch
			if len(j.batches) > 0 {
				b, j.batches = j.batches[0], j.batches[1:]
			} else if b = s.nextOf(j); b == nil {
				break
			}
			age := nowMS - b.ms
			if b.numbers[0] < j.suspect && !b.released || !b.loadEvents() {
				s.hold(b, "damaged")
				continue
			}
			if b.ms != 0 && (age >= s.limits.holdAfterMS || -age >= s.limits.holdAfterMS) {
				s.hold(b, "age")
				continue
			}
			if b.ms == 0 {
				b.ms = max(nowMS, 1)
				if err := s.writeBatch(b); err != nil { // not sent without its record; tried again later
					b.ms = 0
					j.batches = slices.Insert(j.batches, 0, b)
					return nil, err
				}
			}
			return b, nil
		}
	}
	return nil, nil
}

// nextOf returns the next events of a file that no batch has. They get a key, but no record yet.
func (s *spoolStore) nextOf(j *journal) *batch {
	b := &batch{key: newKey(), journal: j}
	room, taken := s.limits.batchBytes-int64(len(`{"events":[]}`)), int64(0)
	for ; j.cursor < j.end() && len(b.numbers) < s.limits.batchEvents; j.cursor++ {
		number := j.cursor
		if !j.isOpen(number) {
			continue
		}
		if len(b.numbers) > 0 && number >= j.suspect && j.suspect > b.numbers[0] {
			break // behind a damaged record nothing is in doubt
		}
		size := j.eventBytes(number) + 1
		if room -= size; room < 0 && len(b.numbers) > 0 {
			break
		}
		taken += j.recordBytes(number)
		b.numbers = append(b.numbers, number)
	}
	if j == s.own {
		s.queuedEvents, s.queuedBytes = max(s.queuedEvents-len(b.numbers), 1), max(s.queuedBytes-taken, 0)
		if j.cursor >= j.end() {
			s.queuedEvents, s.queuedBytes = 0, 0
		}
	}
	if len(b.numbers) == 0 {
		return nil
	}
	b.ended = make([]bool, len(b.numbers))
	return b
}

func (s *spoolStore) writeBatch(b *batch) error {
	first := b.numbers[0]
	count := b.numbers[len(b.numbers)-1] - first + 1
	return b.journal.append(fmt.Appendf(nil, "B %d %d %d %s", first, count, b.ms, b.key), s.sync)
}

func (s *spoolStore) split(b *batch) error {
	if err := b.journal.append(fmt.Appendf(nil, "S %d", b.numbers[0]), s.sync); err != nil {
		return err
	}
	b.isSplit = true
	return nil
}

func (s *spoolStore) end(b *batch, index int) {
	b.ended[index] = true
	if b.isSplit {
		s.settle(b, b.numbers[index], 1)
	}
}

func (s *spoolStore) finish(b *batch) {
	switch left := b.left(); {
	case len(left) > 0 && !b.isHeld:
		b.events = nil
		b.journal.batches = slices.Insert(b.journal.batches, 0, b) // the next one again
	case len(left) == 0 && !b.isSplit:
		s.settle(b, b.numbers[0], b.numbers[len(b.numbers)-1]-b.numbers[0]+1)
	}
}

func (s *spoolStore) settle(b *batch, first, count int64) {
	// Without the record, the events are repeated under their keys after a restart, which stores nothing twice.
	if err := b.journal.append(fmt.Appendf(nil, "D %d %d", first, count), false); err != nil {
		s.warn("client/spool", err.Error())
	}
	b.journal.settle(first, count)
	s.tidy(b.journal)
}

// --- Held batches ---

// Choice is what to do with a held batch.
type Choice string

const (
	Send Choice = "send" // under a new key: it may be stored twice
	Drop Choice = "drop" // its events end as errors
)

// Held is a batch of the spool that is not sent until the application decides, because its events may be
// stored already: its key may have expired ("age"), or a record was damaged ("damaged").
type Held struct {
	ID     string
	Reason string
	Events []Event
}

func (s *spoolStore) hold(b *batch, reason string) {
	name := fmt.Sprintf("%s-%d", strings.TrimSuffix(filepath.Base(b.journal.path), ".spool"), b.numbers[0])
	b.isHeld, b.events = true, nil
	s.held[name] = &heldBatch{b, reason}
	s.newlyHeld += len(b.left())
	s.warn("client/held", fmt.Sprintf("%d events are held (%s): they may be stored already; "+
		"choose with client.Release(%q, …)", len(b.left()), reason, name))
}

func (s *spoolStore) listHeld() []Held {
	list := []Held{}
	for name, held := range s.held {
		one := Held{ID: name, Reason: held.reason}
		for _, number := range held.left() {
			if text := held.journal.read(number); text != nil {
				one.Events = append(one.Events, decode(text))
			}
		}
		list = append(list, one)
	}
	slices.SortFunc(list, func(a, b Held) int { return strings.Compare(a.ID, b.ID) })
	return list
}

// release returns the events that were dropped, and how many leave the held ones.
func (s *spoolStore) release(name string, choice Choice) (dropped [][]byte, count int, err error) {
	held := s.held[name]
	if held == nil {
		return nil, 0, badOption("id", fmt.Sprintf("%.100q is not held", name))
	}
	left := held.left()
	if choice == Drop {
		for _, number := range left {
			text := held.journal.read(number)
			if text == nil {
				text = []byte("{}")
			}
			dropped = append(dropped, text)
		}
		s.settle(held.batch, left[0], left[len(left)-1]-left[0]+1)
	} else {
		again := &batch{key: newKey(), journal: held.journal, ms: max(s.nowMS(), 1), released: true}
		isLost := func(n int64) bool { return held.journal.read(n) == nil }
		again.numbers = slices.DeleteFunc(slices.Clone(left), isLost)
		if len(again.numbers) == 0 {
			return nil, 0, spoolError("none of the held events can be read; drop them")
		}
		again.ended = make([]bool, len(again.numbers))
		if err := s.writeBatch(again); err != nil {
			return nil, 0, err
		}
		held.journal.batches = append(held.journal.batches, again)
		left = again.numbers
	}
	delete(s.held, name)
	return dropped, len(left), nil
}

// close lets go of all files. What is not settled stays for the next process.
func (s *spoolStore) close() [][]byte {
	for _, j := range slices.Clone(s.journals) {
		if j.isSettled() {
			s.remove(j)
		} else {
			_ = j.file.Close()
		}
	}
	s.journals, s.own = nil, nil
	return nil
}
