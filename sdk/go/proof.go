package sealog

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"math/bits"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Proofs that an event is in a signed tree: docs/format.md, section 8. Every value has one spelling, and any
// other is refused, so that this reader and other programs cannot differ about a proof.

// ProofResult is the verdict on a proof. Reason is one of vectors/trust/README.md, or "fork": another
// checkpoint of the same size had another root.
type ProofResult struct {
	Holds           bool
	Reason, Message string
}

// VerifyProof checks a proof of an event, as GET /tlog/v1/chain/proof?format=tlog-proof gives it, without the
// service. vkey is the key of the server's log; if it is empty, no signature is checked.
func VerifyProof(event, proof []byte, vkey string) (ProofResult, error) {
	p, err := newProofs(vkey)
	if err != nil {
		return ProofResult{}, err
	}
	return p.check(event, proof), nil
}

// proofs checks the proofs of one log. Checkpoints of one size have to agree over all of them.
type proofs struct {
	key    *logKey
	roots  map[uint64][32]byte
	signed string // the checkpoint whose signature was checked last: proofs share it
}

func newProofs(vkey string) (*proofs, error) {
	p := &proofs{roots: map[uint64][32]byte{}}
	if vkey != "" {
		if p.key = parseLogKey(vkey); p.key == nil {
			return nil, badOption("VKey", "must be the log's key, NAME+ID+KEY, as `sealog trust vkey` prints it")
		}
	}
	return p, nil
}

type refused struct{ reason, message string }

func (r *refused) Error() string { return r.message }

func refuse(reason, format string, args ...any) error {
	return &refused{reason, fmt.Sprintf(format, args...)}
}

func (p *proofs) check(event, proof []byte) ProofResult {
	var why *refused
	if errors.As(p.verify(event, proof), &why) {
		return ProofResult{Reason: why.reason, Message: why.message}
	}
	return ProofResult{Holds: true}
}

func (p *proofs) verify(event, proof []byte) error {
	file, err := readProof(proof)
	if err != nil {
		return err
	}
	claim, err := readClaim(file.extra)
	if err != nil {
		return err
	}
	entry, err := claim.entry(event)
	if err != nil {
		return err
	}
	origin, size, root, err := file.note.checkpoint()
	if err != nil {
		return err
	}
	if p.key != nil && file.note.whole != p.signed {
		if origin != p.key.name {
			return refuse("origin", "the checkpoint is of the log %q", origin)
		}
		if err := file.note.verify(p.key); err != nil {
			return err
		}
		p.signed = file.note.whole
	}
	found, err := rootFromPath(digest([]byte{0}, []byte(entry)), file.index, size, file.path)
	if err == nil && found != root {
		err = refuse("root", "the proof leads to another root than that of the checkpoint")
	}
	if err != nil {
		return err
	}
	if earlier, ok := p.roots[size]; ok && earlier != root {
		return refuse("fork", "another checkpoint of %d entries had another root", size)
	}
	p.roots[size] = root
	return nil
}

// prove asks for the proof of an event and checks it. It returns "proven", "unsigned", "not_yet", "no_proof",
// "absent" if the server publishes none at all, or "disproved" and why.
func (c *Client) prove(ctx context.Context, event *StoredEvent, p *proofs) (shows, why string, err error) {
	query := url.Values{"log_id": {event.LogID}, "format": {"tlog-proof"}}
	var file []byte
	err = c.endpoint.attempts(ctx, get("/tlog/v1/chain/proof", query), func(a *answer) failure {
		file = a.body
		return nil
	}, nil)
	var problem *Error
	if errors.As(err, &problem) {
		switch problem.Code {
		case "tlog/not_yet":
			return "not_yet", "", nil
		case "tlog/pruned":
			return "no_proof", "", nil
		case "request/not_found":
			return "absent", "", nil
		case "tlog/not_found": // of an event that this server has just returned
			return "disproved", "the server says that no signed tree has it", nil
		}
	}
	if err != nil {
		return "", "", err
	}
	result := p.check(event.Text, file)
	switch {
	case !result.Holds:
		return "disproved", result.Message + " (" + result.Reason + ")", nil
	case p.key == nil:
		return "unsigned", "", nil
	}
	return "proven", "", nil
}

// --- Texts ---

func digest(parts ...[]byte) (sum [32]byte) {
	hash := sha256.New()
	for _, part := range parts {
		hash.Write(part)
	}
	hash.Sum(sum[:0])
	return sum
}

func malformed(what string) error {
	return refuse("malformed", "%s is missing or malformed", what)
}

// isName allows what other programs take for one word.
func isName(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(c rune) bool {
		return c <= ' ' || c == '+' || c == 0x85 || c == 0xa0 || c == 0x1680 || c >= 0x2000 && c <= 0x200a ||
			c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000
	})
}

// unbase64 returns nil for anything but the one spelling of some bytes.
func unbase64(text string) []byte {
	value, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil || strings.ContainsAny(text, "\r\n") || len(value) == 0 {
		return nil
	}
	return value
}

func isHex(text string, length int) bool {
	return len(text) == 2*length && madeOf(text, "0123456789abcdef")
}

// texts reads lines that all end with a line feed. After the first error it returns zero values.
type texts struct {
	rest string
	err  error
}

func (t *texts) fail(what string) {
	if t.err == nil {
		t.err, t.rest = malformed(what), ""
	}
}

func (t *texts) next(what string) string {
	line, rest, found := strings.Cut(t.rest, "\n")
	if !found || t.err != nil {
		t.fail(what)
		return ""
	}
	t.rest = rest
	return line
}

// value is that of the line `NAME VALUE`.
func (t *texts) value(name string) string {
	value, found := strings.CutPrefix(t.next(name), name+" ")
	if !found {
		t.fail(name)
	}
	return value
}

func (t *texts) decimal(what, text string) uint64 {
	number, err := strconv.ParseUint(text, 10, 63)
	if err != nil || strconv.FormatUint(number, 10) != text {
		t.fail(what)
	}
	return number
}

func (t *texts) hex(what, text string, length int) []byte {
	if !isHex(text, length) {
		t.fail(what)
		return nil
	}
	value, _ := hex.DecodeString(text)
	return value
}

func (t *texts) hash(what string) (hash [32]byte) {
	value := unbase64(t.next(what))
	if len(value) != 32 {
		t.fail(what)
		return hash
	}
	return [32]byte(value)
}

func (t *texts) hashes(most int) (hashes [][32]byte) {
	for t.err == nil && t.rest != "" && t.rest[0] != '\n' {
		if hashes = append(hashes, t.hash("path")); len(hashes) > most {
			t.fail("path")
		}
	}
	return hashes
}

func (t *texts) empty() {
	if t.next("empty line") != "" {
		t.fail("empty line")
	}
}

func (t *texts) end() error {
	if t.rest != "" {
		t.fail("end")
	}
	return t.err
}

// --- The file, and what its extra data claims ---

const (
	pathMax     = 63
	triePathMax = 256
)

type proofFile struct {
	extra []byte
	index uint64
	path  [][32]byte
	note  *note
}

func readProof(data []byte) (*proofFile, error) {
	if len(data) > 1_179_648 || !utf8.Valid(data) {
		return nil, malformed("proof")
	}
	t, file := &texts{rest: string(data)}, &proofFile{}
	if t.next("header") != "c2sp.org/tlog-proof@v1" {
		t.fail("header")
	}
	if strings.HasPrefix(t.rest, "extra ") {
		if file.extra = unbase64(t.value("extra")); file.extra == nil || len(file.extra) > 65536 {
			t.fail("extra")
		}
	}
	file.index = t.decimal("index", t.value("index"))
	file.path = t.hashes(pathMax)
	t.empty()
	if t.err != nil {
		return nil, t.err
	}
	var err error
	file.note, err = readNote(t.rest)
	return file, err
}

type note struct {
	whole, text string
	signatures  []signature
}

type signature struct {
	name, id string
	bytes    []byte
}

var signatureLine = regexp.MustCompile("^\u2014 ([^ ]+) ([^ ]+)$")

func readNote(whole string) (*note, error) {
	isControl := func(c rune) bool { return c < ' ' && c != '\n' }
	cut := strings.LastIndex(whole, "\n\n")
	if len(whole) > 1<<20 || cut < 0 || strings.ContainsFunc(whole, isControl) || !strings.HasSuffix(whole[cut+2:], "\n") {
		return nil, malformed("checkpoint")
	}
	n := &note{whole: whole, text: whole[:cut+1]}
	for _, line := range strings.Split(strings.TrimSuffix(whole[cut+2:], "\n"), "\n") {
		parts := signatureLine.FindStringSubmatch(line)
		if parts == nil || !isName(parts[1]) || len(n.signatures) == 64 {
			return nil, malformed("signature")
		}
		value := unbase64(parts[2])
		if len(value) < 5 {
			return nil, malformed("signature")
		}
		n.signatures = append(n.signatures, signature{parts[1], hex.EncodeToString(value[:4]), value[4:]})
	}
	return n, nil
}

func (n *note) checkpoint() (origin string, size uint64, root [32]byte, err error) {
	t := &texts{rest: n.text}
	if origin = t.next("origin"); origin == "" {
		t.fail("origin")
	}
	size = t.decimal("size", t.next("size"))
	root = t.hash("root")
	return origin, size, root, t.end()
}

// verify refuses a wrong signature of the key also beside a right one.
func (n *note) verify(key *logKey) error {
	isOwn := false
	for _, s := range n.signatures {
		if s.name != key.name || s.id != key.id {
			continue
		}
		if isOwn = true; !isSigned(key.bytes, []byte(n.text), s.bytes) {
			return refuse("signature", "the signature of %s is wrong", key.name)
		}
	}
	if !isOwn {
		return refuse("signature", "%s has not signed the checkpoint", key.name)
	}
	return nil
}

type claim struct {
	mode          string
	seq           uint64
	salt, private []byte // one of them
	size          uint64
	path          [][32]byte
	time          uint64
	blind         []byte
	triePath      [][32]byte
}

func readClaim(extra []byte) (*claim, error) {
	if !utf8.Valid(extra) {
		return nil, malformed("extra")
	}
	t, c := &texts{rest: string(extra)}, &claim{}
	if t.next("kind") != "sealog/event-proof/v1" {
		t.fail("kind")
	}
	if c.mode = t.value("mode"); c.mode != "live" && c.mode != "test" {
		t.fail("mode")
	}
	c.seq = t.decimal("seq", t.value("seq"))
	if salt := t.value("salt"); salt == "-" {
		c.private = t.hex("private", t.value("private"), 32)
	} else {
		c.salt = t.hex("salt", salt, 16)
	}
	c.size = t.decimal("size", t.value("size"))
	c.path = t.hashes(pathMax)
	t.empty()
	c.time = t.decimal("time", t.value("time"))
	c.blind = t.hex("blind", t.value("blind"), 16)
	c.triePath = t.hashes(triePathMax)
	return c, t.end()
}

// --- From an event to an entry of the store's log ---

var (
	publicFields  = []string{"category", "severity", "actor_type", "resource_type"}
	privateFields = []string{"session_id", "ts_client", "ip_address", "country", "city"}
)

// entry is the one that has this event, if the claim is right.
func (c *claim) entry(text []byte) (string, error) {
	event, err := readSealed(text)
	if err != nil || event.problem != "" {
		return "", refuse("event", "the event is malformed")
	}
	whole, err := readWhole(text)
	if err != nil {
		return "", err
	}
	shown := slices.ContainsFunc(privateFields, func(name string) bool { _, is := whole.notes[name]; return is })
	switch {
	case c.seq != event.seq:
		return "", refuse("seq", "the proof is about event #%d", c.seq)
	case whole.schema != 1:
		return "", refuse("schema", "schema_version %d is not known; update the library", whole.schema)
	case event.computed != event.hash:
		return "", refuse("hash", "the event was changed: its content does not match its hash")
	case c.salt == nil && shown:
		return "", refuse("annotations", "the event shows private fields, but its proof has no salt for them")
	}
	secret := c.private
	if c.salt != nil {
		private, err := whole.fields(privateFields, 5)
		if err != nil {
			return "", err
		}
		sum := digest([]byte{4}, c.salt, private)
		secret = sum[:]
	}
	public, err := whole.fields(publicFields, 1)
	if err != nil {
		return "", err
	}
	hash, _ := hex.DecodeString(event.hash)
	leaf := digest([]byte{0, 1}, uint64Bytes(event.seq), hash, secret, []byte{0, 1}, public)
	root, err := rootFromPath(leaf, c.seq-1, c.size, c.path) // of 0: an index that no tree has
	if err != nil {
		return "", err
	}
	tag := digest([]byte("sealog/chain/v1\n" + whole.tenant + "\n" + whole.project + "\n" + c.mode + "\n"))
	hidden := digest([]byte{7, 1}, uint64Bytes(c.size), root[:], c.blind)
	trie := digest([]byte{2}, tag[:], hidden[:])
	for i, beside := range c.triePath {
		depth := len(c.triePath) - 1 - i
		if tag[depth/8]>>(7-depth%8)&1 == 1 {
			trie = digest([]byte{3}, beside[:], trie[:])
		} else {
			trie = digest([]byte{3}, trie[:], beside[:])
		}
	}
	return fmt.Sprintf("sealog/heads/v1\n%d\n%s\n", c.time, base64.StdEncoding.EncodeToString(trie[:])), nil
}

type wholeEvent struct {
	schema          uint64
	tenant, project string
	notes           map[string]string
}

// readWhole reads the fields that a leaf covers. A field that neither the hash nor a leaf covers is refused.
func readWhole(text []byte) (*wholeEvent, error) {
	whole := &wholeEvent{schema: 1, notes: map[string]string{}}
	uncovered, seen := "", map[string]bool{}
	s := scanner{data: text}
	s.next()
	s.pos++
	for s.next() != '}' {
		if s.data[s.pos] == ',' {
			s.pos++
		}
		key, _ := s.key(nil) // readSealed has read all of it
		value, _ := s.value(nil)
		name, shown := string(key[1:len(key)-2]), string(value)
		isHashed := slices.ContainsFunc(forms, func(f form) bool { return f.name == name })
		isRight := shown == "null" || isHashed
		switch {
		case name == "tenant_id":
			whole.tenant = strings.Trim(shown, `"`)
		case name == "project_id":
			whole.project = strings.Trim(shown, `"`)
		case name == "schema_version":
			number, err := strconv.ParseUint(shown, 10, 32)
			if err == nil && number > 0 && strconv.FormatUint(number, 10) == shown {
				whole.schema, isRight = number, true
			}
		case slices.Contains(publicFields, name) || slices.Contains(privateFields, name):
			var note string
			// Half a character, which only an escape can write, would become another one.
			if !isRight && shown[0] == '"' && !hasSurrogate(shown) && json.Unmarshal(value, &note) == nil {
				whole.notes[name], isRight = note, true
			}
		}
		if (seen[name] || !isRight) && uncovered == "" {
			uncovered = name
		}
		seen[name] = true
	}
	if whole.schema == 1 && uncovered != "" {
		return nil, refuse("annotations", "neither the hash nor the proof covers the field %q", uncovered)
	}
	return whole, nil
}

// hasSurrogate: canonical text has an escape \ud… only for half a character.
func hasSurrogate(canonical string) bool {
	return surrogate.MatchString(canonical)
}

var surrogate = regexp.MustCompile(`(?:^|[^\\])(?:\\\\)*\\ud[89a-f]`)

func (w *wholeEvent) fields(names []string, firstKind byte) ([]byte, error) {
	var out []byte
	for i, name := range names {
		value, ok := w.notes[name]
		if !ok {
			continue
		}
		if len(value) > 65535 {
			return nil, refuse("leaf", "no leaf can be made of an event with so long a %s", name)
		}
		out = append(out, firstKind+byte(i), byte(len(value)>>8), byte(len(value)))
		out = append(out, value...)
	}
	return out, nil
}

func uint64Bytes(value uint64) []byte {
	return binary.BigEndian.AppendUint64(nil, value)
}

// rootFromPath: RFC 9162, 2.1.3.2. The number of hashes follows from the place and the size.
func rootFromPath(hash [32]byte, index, size uint64, path [][32]byte) ([32]byte, error) {
	inner := 0
	if index < size {
		inner = bits.Len64(index ^ (size - 1))
	}
	if index >= size || len(path) != inner+bits.OnesCount64(index>>inner) {
		return hash, refuse("root", "a path of %d hashes does not fit leaf %d of %d", len(path), index, size)
	}
	for level, beside := range path {
		if level >= inner || index>>level&1 == 1 {
			hash = digest([]byte{1}, beside[:], hash[:])
		} else {
			hash = digest([]byte{1}, hash[:], beside[:])
		}
	}
	return hash, nil
}

// --- Signatures ---

type logKey struct {
	name, id string
	bytes    []byte
}

// parseLogKey reads NAME+ID+KEY. It returns nil for anything else, also for the key of a witness.
func parseLogKey(vkey string) *logKey {
	parts := strings.SplitN(vkey, "+", 3)
	if len(parts) != 3 || !utf8.ValidString(vkey) || !isName(parts[0]) || !isHex(parts[1], 4) {
		return nil
	}
	key := unbase64(parts[2])
	if len(key) != 33 || key[0] != 1 || !isLargePoint(key[1:]) {
		return nil
	}
	if id := digest([]byte(parts[0]+"\n"), key); hex.EncodeToString(id[:4]) != parts[1] {
		return nil
	}
	return &logKey{parts[0], parts[1], key[1:]}
}

// isSigned lets crypto/ed25519 check the equation and the scalar, and refuses points of which libraries differ.
func isSigned(key, message, signature []byte) bool {
	return len(signature) == ed25519.SignatureSize && isLargePoint(signature[:32]) &&
		ed25519.Verify(key, message, signature)
}

var (
	prime     = new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 255), big.NewInt(19))
	curveD, _ = new(big.Int).SetString(
		"37095705934669439343138083508754565189542113879843219016388785533085940283555", 10)
	// y of a point of order 8. Those of the other points of small order are 0, 1, -1 and its negative.
	eighth, _ = new(big.Int).SetString(
		"55188659117513257062467267217118295137698188065244968500265048394206261417927", 10)
)

// isLargePoint reports whether 32 bytes are a point of large order in its one spelling.
func isLargePoint(data []byte) bool {
	number := bytes.Clone(data)
	slices.Reverse(number)
	number[0] &= 0x7f
	y, one := new(big.Int).SetBytes(number), big.NewInt(1)
	if y.Cmp(prime) >= 0 || y.Sign() == 0 {
		return false
	}
	for _, small := range []*big.Int{one, new(big.Int).Sub(prime, one), eighth, new(big.Int).Sub(prime, eighth)} {
		if y.Cmp(small) == 0 {
			return false
		}
	}
	square := new(big.Int).Mul(y, y)
	below := new(big.Int).Mul(square, curveD)
	below.Add(below, one).ModInverse(below, prime)
	square.Sub(square, one).Mul(square, below).Mod(square, prime)
	return big.Jacobi(square, prime) == 1
}
