package sealog

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// --- An event and its hash ---

// sealed is what the checks need of an event. problem says why it is malformed.
type sealed struct {
	seq            uint64
	hasSeq         bool
	hash, prevHash string
	chain          string // tenant and project
	logID          string
	ms             int64
	computed       string
	problem        string
}

type form struct {
	name     string
	fits     func(string) bool
	optional bool
}

// The fields that take part in the check, and the form of their canonical text. The others are not covered by
// the hash.
var forms = []form{
	{"log_id", isLogID, false}, {"tenant_id", isUUID, false}, {"action", isText, false},
	{"actor_id", isText, true}, {"resource", isText, true},
	{"metadata", func(s string) bool { return s[0] == '{' }, true},
	{"project_id", isUUID, false}, {"timestamp", func(s string) bool { return millis(s) >= 0 }, false},
	{"chain_seq", isSeq, false}, {"prev_hash", isHash, false}, {"hash", isHash, false},
}

const payloadFields = 6 // the first six of forms, in the order of the payload

func readSealed(text []byte) (sealed, error) {
	s := scanner{data: text}
	var values [11]string
	var event sealed
	if s.next() != '{' {
		return event, s.expected("an event")
	}
	s.pos++
	for first := true; s.next() != '}'; first = false {
		if !first {
			if s.next() != ',' {
				return event, s.expected("',' or '}'")
			}
			s.pos++
		}
		key, err := s.key(nil)
		if err != nil {
			return event, err
		}
		value, err := s.value(nil)
		if err != nil {
			return event, err
		}
		for i := range forms {
			if string(key[1:len(key)-2]) == forms[i].name { // without its quotes and colon
				if values[i] != "" { // Which one was meant? Two readers could answer differently.
					event.problem, value = forms[i].name+" occurs twice", []byte(`?`)
				}
				values[i] = string(value)
			}
		}
	}
	s.pos++
	if s.next() != 0 {
		return event, s.expected("the end of the event")
	}
	return event.fill(&values), nil
}

func (event sealed) fill(values *[11]string) sealed {
	payload := []byte{'{'}
	for i, form := range forms {
		value := values[i]
		if form.optional && (value == "" || value == "null") {
			value = "null"
		} else if value == "" || !form.fits(value) {
			values[i] = ""
			if event.problem == "" {
				event.problem = form.name + " is missing or malformed"
			}
		}
		if i < payloadFields {
			if i > 0 {
				payload = append(payload, ',')
			}
			payload = append(append(append(payload, '"'), form.name...), '"', ':')
			payload = append(payload, value...)
		}
	}
	if values[8] != "" {
		event.seq, _ = strconv.ParseUint(values[8], 10, 64)
		event.hasSeq = true
	}
	event.hash = strings.Trim(values[10], `"`)
	if event.problem != "" {
		return event
	}
	event.logID, event.chain = strings.Trim(values[0], `"`), values[1]+values[6]
	event.prevHash, event.ms = strings.Trim(values[9], `"`), millis(values[7])
	sum := sha256.New()
	sum.Write([]byte(event.prevHash))
	sum.Write(append(payload, '}'))
	sum.Write(strconv.AppendInt(nil, event.ms, 10))
	event.computed = hex.EncodeToString(sum.Sum(nil))
	return event
}

const crockford = "0123456789ABCDEFGHJKMNPQRSTVWXYZ" // the digits of a ULID; their ASCII order is their order

func isText(s string) bool { return s[0] == '"' }

func isLogID(s string) bool {
	return len(s) == 28 && s[0] == '"' && s[1] <= '7' && madeOf(s[1:27], crockford)
}

func isHash(s string) bool {
	return len(s) == 66 && s[0] == '"' && madeOf(s[1:65], "0123456789abcdef")
}

func isUUID(s string) bool {
	return len(s) == 38 && s[0] == '"' && s[9] == '-' && s[14] == '-' && s[19] == '-' && s[24] == '-' &&
		madeOf(s[1:9]+s[10:14]+s[15:19]+s[20:24]+s[25:37], "0123456789abcdef")
}

func isSeq(s string) bool {
	return len(s) <= 19 && madeOf(s, "0123456789") && (s[0] != '0' || s == "0")
}

func madeOf(s, alphabet string) bool {
	return strings.Trim(s, alphabet) == ""
}

// millis reads a timestamp in its one spelling, quotes included; -1 for any other text.
func millis(s string) int64 {
	t, err := time.Parse(`"2006-01-02T15:04:05.000Z"`, s)
	if err != nil || len(s) != 26 || s[20] != '.' || t.Year() < 1970 {
		return -1
	}
	return t.UnixMilli()
}

// --- The checks on a chain: vectors/README.md ---

// Head is the position and hash of an event, noted earlier from a receipt.
type Head struct {
	ChainSeq uint64
	Hash     string
}

// ParseHead reads "SEQ:HASH".
func ParseHead(text string) (Head, error) {
	seq, hash, _ := strings.Cut(text, ":")
	number, err := strconv.ParseUint(seq, 10, 64)
	if err != nil || number == 0 || !isSeq(seq) || !isHash(`"`+hash+`"`) {
		return Head{}, badOption("heads",
			fmt.Sprintf("%.100q is not SEQ:HASH, a number and 64 lower-case hex digits", text))
	}
	return Head{number, hash}, nil
}

// ChainResult is the verdict on a chain. Reason is one of vectors/README.md: malformed, chain, gap, link,
// hash, order, head or tail. BrokenHash is empty if it cannot be read.
type ChainResult struct {
	Valid      bool   `json:"valid"`
	Checked    int    `json:"checked"`
	FirstSeq   uint64 `json:"first_seq"`
	LastSeq    uint64 `json:"last_seq"`
	BrokenAt   uint64 `json:"broken_at,omitempty"`
	BrokenHash string `json:"broken_hash,omitempty"`
	Reason     string `json:"reason,omitempty"`
	Message    string `json:"-"`
}

// Verifier recomputes every hash and follows every link of a chain, oldest or newest first, without the
// service. It keeps no texts: a chain that comes newest first takes about 400 bytes of memory for each event.
type Verifier struct {
	heads  map[uint64][]string
	held   []sealed // while the direction is not known, or falls
	rises  bool
	before *sealed
	result ChainResult
}

// NewVerifier takes heads that were noted earlier. Without one, a tail that was cut off does not show.
func NewVerifier(heads ...Head) *Verifier {
	v := &Verifier{heads: map[uint64][]string{}, result: ChainResult{Valid: true, FirstSeq: 1}}
	for _, head := range heads {
		v.heads[head.ChainSeq] = append(v.heads[head.ChainSeq], head.Hash)
	}
	return v
}

// VerifyEvents checks the texts of the events of one chain. A text that is not a JSON object is an error.
func VerifyEvents(texts [][]byte, heads ...Head) (ChainResult, error) {
	v := NewVerifier(heads...)
	for i, text := range texts {
		if err := v.Add(text); err != nil {
			return ChainResult{}, fmt.Errorf("event %d: %w", i, err)
		}
	}
	return v.Result(), nil
}

// Add takes the text of the next event.
func (v *Verifier) Add(text []byte) error {
	event, err := readSealed(text)
	if err != nil {
		return invalid("event", err.Error())
	}
	if v.rises {
		v.check(&event)
		return nil
	}
	for i := len(v.held) - 1; i >= 0 && event.hasSeq; i-- {
		if v.held[i].hasSeq {
			v.rises = event.seq >= v.held[i].seq
			break
		}
	}
	v.held = append(v.held, event)
	if v.rises {
		v.release()
	}
	return nil
}

// Result is the verdict on the events so far. Call it at the end.
func (v *Verifier) Result() ChainResult {
	known := 0
	for i := range v.held {
		if v.held[i].hasSeq {
			known++
		}
	}
	if known > 1 {
		slices.Reverse(v.held) // lists come newest first
	}
	v.rises = true
	v.release()
	r, last := v.result, uint64(0)
	if v.before != nil {
		last = v.before.seq
	}
	if r.Valid {
		r.LastSeq = last
		beyond := uint64(math.MaxUint64)
		for seq := range v.heads {
			if seq > last {
				beyond = min(beyond, seq)
			}
		}
		if beyond != math.MaxUint64 {
			v.breakAt(&r, last+1, slices.Min(v.heads[beyond]), "tail", fmt.Sprintf(
				"the chain ends at %d, before the expected head %d: events at the end are missing", last, beyond))
		}
	}
	if r.Valid {
		r.Message = fmt.Sprintf("valid: %d events, chain_seq %d to %d; "+
			"every hash was recomputed and every link followed", r.Checked, r.FirstSeq, last)
		if len(v.heads) == 0 {
			r.Message += "; without a head, a tail that was cut off or a chain rewritten as a whole does not show"
		}
	}
	return r
}

func (v *Verifier) release() {
	for i := range v.held {
		v.check(&v.held[i])
	}
	v.held = nil
}

func (v *Verifier) check(event *sealed) {
	if !v.result.Valid {
		return
	}
	due := uint64(1)
	if v.before != nil {
		due = v.before.seq + 1
	}
	seq := due
	if event.hasSeq {
		seq = event.seq
	}
	if v.result.Checked == 0 {
		v.result.FirstSeq = seq
	}
	v.result.Checked++
	if reason, seen := v.fault(event, due); reason != "" {
		v.breakAt(&v.result, seq, event.hash, reason, seen)
		return
	}
	kept := *event
	v.before = &kept
}

func (v *Verifier) breakAt(r *ChainResult, seq uint64, hash, reason, seen string) {
	r.Valid, r.LastSeq, r.BrokenAt, r.BrokenHash, r.Reason = false, seq, seq, hash, reason
	r.Message = fmt.Sprintf("broken at chain_seq %d (%s): %s", seq, reason, seen)
}

// fault returns the first check that fails, in the order of vectors/README.md.
func (v *Verifier) fault(event *sealed, due uint64) (reason, seen string) {
	if event.problem != "" {
		return "malformed", event.problem
	}
	if v.before != nil && event.chain != v.before.chain {
		return "chain", "the event is of another tenant or project than the first"
	}
	if event.seq != due && (v.before != nil || event.seq < 1) {
		return "gap", fmt.Sprintf("chain_seq is %d where %d is due: events were removed, added or reordered",
			event.seq, due)
	}
	links := v.heads[event.seq-1] // at the start of a part, only a head says what came before
	if event.seq == 1 {
		links = []string{strings.Repeat("0", 64)}
	} else if v.before != nil {
		links = []string{v.before.hash}
	}
	for _, link := range links {
		if link != event.prevHash {
			return "link", fmt.Sprintf("prev_hash is %s, the hash before is %s", event.prevHash, link)
		}
	}
	if event.computed != event.hash {
		return "hash", fmt.Sprintf("hash is %s, recomputing gives %s: the event was changed after it was sealed",
			event.hash, event.computed)
	}
	if v.before != nil && event.logID <= v.before.logID {
		return "order", fmt.Sprintf("log_id is %s, the one before is %s", event.logID, v.before.logID)
	}
	if logIDMillis(event.logID) != event.ms {
		return "order", fmt.Sprintf("log_id %s does not carry the timestamp", event.logID)
	}
	for _, hash := range v.heads[event.seq] {
		if hash != event.hash {
			return "head", fmt.Sprintf("hash is %s, expected was %s: the chain was rewritten", event.hash, hash)
		}
	}
	return "", ""
}

func logIDMillis(logID string) (ms int64) {
	for i := range 10 {
		ms = ms<<5 | int64(strings.IndexByte(crockford, logID[i]))
	}
	return ms
}

// --- Events as the service returns them ---

// StoredEvent is an event with its exact text, which is what its hash covers.
type StoredEvent struct {
	Event
	LogID         string `json:"log_id"`
	TenantID      string `json:"tenant_id"`
	ProjectID     string `json:"project_id"`
	SchemaVersion int    `json:"schema_version"`
	Category      string `json:"category"`
	IPAddress     string `json:"ip_address"`
	Country       string `json:"country"`
	City          string `json:"city"`
	Timestamp     string `json:"timestamp"`
	ChainSeq      uint64 `json:"chain_seq"`
	PrevHash      string `json:"prev_hash"`
	Hash          string `json:"hash"`
	Text          []byte `json:"-"`
}

// IsSound reports whether the text gives the hash. It does not cover the events before and behind it.
func (e *StoredEvent) IsSound() bool {
	event, err := readSealed(e.Text)
	return err == nil && event.problem == "" && event.computed == event.hash
}

func storedEvent(text []byte) (*StoredEvent, error) {
	event := &StoredEvent{Text: bytes.Clone(text)}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(event); err != nil {
		return nil, err
	}
	if event.LogID == "" {
		return nil, fmt.Errorf("it has no log_id")
	}
	return event, nil
}
