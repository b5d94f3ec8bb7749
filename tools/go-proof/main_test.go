package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"filippo.io/torchwood"
	"golang.org/x/mod/sumdb/tlog"
)

type vector struct {
	Name, Result, Proof, Policy, Note, Entry string
	Event                                    *string
	Files                                    map[string]string
	Arguments, Reasons                       []string
	Exit                                     int
}

func vectors(t *testing.T, name string) []vector {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "vectors", "trust", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Cases []vector }
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	return file.Cases
}

func policy(t *testing.T, text string) torchwood.Policy {
	t.Helper()
	policy, err := torchwood.ParsePolicy([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return policy
}

// verify takes the way of an auditor: event, entry, torchwood. A proof of a head has no event.
func verify(policy torchwood.Policy, event *string, proof string) error {
	extra, err := torchwood.ProofExtraData([]byte(proof))
	if err != nil {
		return err
	}
	entry, err := entryOf(string(extra), event)
	if err != nil {
		return err
	}
	return torchwood.VerifyProof(policy, tlog.RecordHash([]byte(entry)), []byte(proof))
}

// agree fails the test unless torchwood accepts what it is to accept. `known` has the cases that it sees
// otherwise, with the reason; a case that has come to agree must leave the list.
func agree(t *testing.T, name string, err error, accepted bool, known map[string]string) {
	t.Helper()
	why, differs := known[name]
	switch same := (err == nil) == accepted; {
	case differs && same:
		t.Errorf("%s: torchwood agrees now (%v), although: %s", name, err, why)
	case !differs && !same:
		t.Errorf("%s: to be accepted: %v, but torchwood says: %v", name, accepted, err)
	}
}

func TestEveryProofOfTheVectorsIsAcceptedOrRefusedAsTheySay(t *testing.T) {
	known := map[string]string{
		"an index with a leading zero": "torchwood reads 041 as 41",
		"another previous hash":        "the event's own hash is not computed here, and the leaf has no previous hash",
	}
	accepted := 0
	for _, v := range vectors(t, "proofs") {
		policy := policy(t, v.Policy)
		agree(t, v.Name, verify(policy, v.Event, v.Proof), v.Result == "ok", known)
		if v.Result != "ok" {
			continue
		}
		accepted++
		extra, err := torchwood.ProofExtraData([]byte(v.Proof))
		if err != nil {
			t.Fatal(err)
		}
		if entry, err := entryOf(string(extra), v.Event); err != nil || entry != v.Entry {
			t.Errorf("%s: the entry is %q: %v", v.Name, entry, err)
		}
		// As the program does it: the text of the entry is given.
		record := tlog.RecordHash([]byte(v.Entry))
		if err := torchwood.VerifyProof(policy, record, []byte(v.Proof)); err != nil {
			t.Errorf("%s: %v", v.Name, err)
		}
		for at := range v.Entry {
			changed := []byte(v.Entry)
			changed[at] ^= 1 << (at % 8)
			if torchwood.VerifyProof(policy, tlog.RecordHash(changed), []byte(v.Proof)) == nil {
				t.Errorf("%s: another entry passes, changed at byte %d", v.Name, at)
			}
		}
	}
	if accepted < 3 {
		t.Errorf("%d proofs to accept", accepted)
	}
}

func TestNoChangedBitOfAProofPasses(t *testing.T) {
	for _, v := range vectors(t, "proofs") {
		if v.Result != "ok" {
			continue
		}
		policy := policy(t, v.Policy)
		// Signatures cost time: all bits of the first proof, and one of each byte of the others.
		start, step, spellings := 0, 1, 0
		if v.Name != "an event" {
			step = 8
		}
		for number, line := range strings.SplitAfter(v.Proof, "\n") {
			refused := 0
			for at := range len(line) {
				for bit := at % step; bit < 8; bit += step {
					changed := []byte(v.Proof)
					changed[start+at] ^= 1 << bit
					switch err := verify(policy, v.Event, string(changed)); {
					case err != nil:
						refused++
					case isSpelling(line, at, changed[start+at]):
						spellings++
					default:
						t.Errorf("%s: line %d passes with bit %d of byte %d changed", v.Name, number+1, bit, at)
					}
				}
			}
			if wanted := 8*len(line)/step - 6; line != "" && refused < max(wanted, 1) {
				t.Errorf("%s: line %d: only %d changes are refused", v.Name, number+1, refused)
			}
			start += len(line)
		}
		t.Logf("%s: %d bytes, %d changes of the spelling alone", v.Name, len(v.Proof), spellings)
	}
}

// isSpelling tells whether a line in base64 still has the same bytes: the last character before the padding
// has bits that Go's decoder ignores. Sealog's readers refuse such a line, as one value has one spelling
// there.
func isSpelling(line string, at int, changed byte) bool {
	from := strings.LastIndex(strings.TrimSuffix(line, "\n"), " ") + 1
	before, errBefore := base64.StdEncoding.DecodeString(line[from:])
	after, errAfter := base64.StdEncoding.DecodeString(line[from:at] + string(changed) + line[at+1:])
	return at+1 == strings.IndexByte(line, '=') && errBefore == nil && errAfter == nil && bytes.Equal(before, after)
}

func TestTheFilesOfEveryVerdictAreJudgedAlike(t *testing.T) {
	known := map[string]string{
		"a checkpoint of another log that is believed, too": "torchwood demands a signature of every log of a policy",
		"a good and a broken signature of one key":          "x/mod looks at the first signature of a key alone",
		"malformed proof: an index with a leading zero":     "torchwood reads 09 as 9",
		"malformed checkpoint: 65 signatures":               "x/mod takes 100",
		"malformed policy: no line feed at its end":         "torchwood takes a last line without its end",
	}
	endless := "proof: a signed checkpoint of 2^63 - 1 entries" // x/mod v0.42 counts powers of two without an end
	accepted, refused := 0, 0
	for _, v := range vectors(t, "verify") {
		if v.Name == endless {
			continue
		}
		broken, judged := judge(v)
		if !judged {
			continue
		}
		about := func(reasons ...string) bool {
			for _, reason := range reasons {
				if len(v.Reasons) > 0 && v.Reasons[0] == reason {
					return true
				}
			}
			return false
		}
		switch {
		case v.Exit == 0:
			agree(t, v.Name, broken, true, known)
			accepted++
		case about("signature", "origin", "quorum"), v.Exit != 0 && strings.HasPrefix(v.Name, "proof: "),
			strings.HasPrefix(v.Name, "malformed "):
			agree(t, v.Name, broken, false, known)
			refused++
		}
	}
	if accepted < 20 || refused < 75 {
		t.Errorf("%d cases to accept, %d to refuse", accepted, refused)
	}
}

// judge gives the first error of torchwood for the proofs and checkpoints of a case. Nothing is judged
// without a key, or without proofs and checkpoints; a proof of an event that is not given is passed over.
func judge(v vector) (broken error, judged bool) {
	var keys, proofs, kept []string
	events := make(map[uint64]string)
	text := ""
	for at := 0; at < len(v.Arguments); at++ {
		switch option := v.Arguments[at]; option {
		case "--key", "--policy", "--proof", "--checkpoint", "--consistency", "--expect":
			at++
			value := v.Arguments[at]
			switch option {
			case "--key":
				keys = append(keys, "log "+value)
			case "--policy":
				text = v.Files[value]
			case "--proof":
				proofs = append(proofs, v.Files[value])
			case "--checkpoint":
				kept = append(kept, v.Files[value])
			}
		case "--json":
		default:
			for _, line := range strings.Split(strings.TrimSpace(v.Files[option]), "\n") {
				var event struct {
					ChainSeq uint64 `json:"chain_seq"`
				}
				if json.Unmarshal([]byte(line), &event) == nil {
					events[event.ChainSeq] = line
				}
			}
		}
	}
	if len(keys) > 0 {
		text = strings.Join(append(keys, "quorum none\n"), "\n")
	}
	if text == "" || len(proofs)+len(kept) == 0 {
		return nil, false
	}
	policy, err := torchwood.ParsePolicy([]byte(text))
	if err != nil {
		return err, true
	}
	for _, note := range kept {
		if _, _, err := torchwood.VerifyCheckpoint([]byte(note), policy); err != nil {
			return err, true
		}
	}
	for _, proof := range proofs {
		var event *string
		extra, err := torchwood.ProofExtraData([]byte(proof))
		if err == nil && strings.HasPrefix(string(extra), "sealog/event-proof/") {
			_, rest, _ := strings.Cut(string(extra), "\nseq ")
			seq, _, _ := strings.Cut(rest, "\n")
			number, err := strconv.ParseUint(seq, 10, 64)
			text, given := events[number]
			if err == nil && !given {
				continue
			}
			event = &text
		}
		if err := verify(policy, event, proof); err != nil {
			return err, true
		}
	}
	return nil, true
}

func TestEveryPolicyOfTheVectorsIsJudgedAlike(t *testing.T) {
	known := map[string]string{
		"one of two logs":                             "torchwood demands a signature of every log of a policy",
		"32 logs":                                     "the same",
		"policy: no line feed at the end":             "torchwood takes a last line without its end",
		"policy: a carriage return":                   "torchwood takes it as white space",
		"policy: a log with words behind the address": "torchwood passes over them",
	}
	for _, v := range vectors(t, "policies") {
		policy, err := torchwood.ParsePolicy([]byte(v.Policy))
		if err == nil {
			_, _, err = torchwood.VerifyCheckpoint([]byte(v.Note), policy)
		}
		agree(t, v.Name, err, v.Result == "ok", known)
	}
}

// ---- From an event to the entry: docs/format.md, section 8, written a fourth time -------------------------

// entryOf is the text of the heads entry that the extra data of a proof leads to.
func entryOf(extra string, event *string) (string, error) {
	r := &reader{lines: strings.SplitAfter(extra, "\n")}
	var tag, root []byte
	var size uint64
	if event == nil {
		r.expect("sealog/head-proof/v1")
		tag = r.hex("tag", 32)
		size = r.number("size")
		root = r.base64("root")
	} else {
		r.expect("sealog/event-proof/v1")
		mode := r.value("mode")
		seq := r.number("seq")
		var salt, private []byte
		if r.peek() == "salt -\n" {
			r.line()
			private = r.hex("private", 32)
		} else {
			salt = r.hex("salt", 16)
		}
		size = r.number("size")
		leaf, chain, err := leafOf(*event, seq, salt, private)
		if r.err == nil && err != nil {
			return "", err
		}
		if mode != "live" && mode != "test" {
			return "", errors.New("another mode")
		}
		tag = sum([]byte("sealog/chain/v1\n" + chain + mode + "\n"))
		if root, err = climb(leaf, seq-1, size, r.hashes()); err != nil {
			return "", err
		}
	}
	r.expect("")
	time := r.number("time")
	blind := r.hex("blind", 16)
	path := r.hashes()
	if r.peek() != "" || r.err != nil || len(path) > 8*len(tag) {
		return "", fmt.Errorf("malformed extra data: %v", r.err)
	}
	hash := sum([]byte{2}, tag, sum([]byte{7, 1}, binary.BigEndian.AppendUint64(nil, size), root, blind))
	for at, beside := range path {
		depth := len(path) - 1 - at
		if tag[depth/8]>>(7-depth%8)&1 == 0 {
			hash = sum([]byte{3}, hash, beside)
		} else {
			hash = sum([]byte{3}, beside, hash)
		}
	}
	return fmt.Sprintf("sealog/heads/v1\n%d\n%s\n", time, base64.StdEncoding.EncodeToString(hash)), nil
}

var fields = []string{"category", "severity", "actor_type", "resource_type", "session_id", "ts_client", "ip_address", "country", "city"}

const public = 4

// leafOf is the leaf hash of an event, and the lines of its chain's tag. The event's own hash is taken as it
// stands.
func leafOf(text string, seq uint64, salt, private []byte) (leaf []byte, chain string, err error) {
	var event struct {
		Seq     uint64 `json:"chain_seq"`
		Version uint16 `json:"schema_version"`
		Hash    string
		Tenant  string `json:"tenant_id"`
		Project string `json:"project_id"`
	}
	var values map[string]json.RawMessage
	if err := errors.Join(json.Unmarshal([]byte(text), &event), json.Unmarshal([]byte(text), &values)); err != nil {
		return nil, "", err
	}
	if event.Seq != seq || seq == 0 {
		return nil, "", errors.New("the proof is about another event")
	}
	var encoded [2][]byte // public and private fields
	for at, name := range fields {
		var value string
		if raw, there := values[name]; !there {
			continue
		} else if err := json.Unmarshal(raw, &value); err != nil {
			return nil, "", err
		}
		if len(value) > 0xffff {
			return nil, "", errors.New("a field has no room")
		}
		half := &encoded[0]
		if at >= public {
			half = &encoded[1]
		}
		*half = append(binary.BigEndian.AppendUint16(append(*half, byte(at+1)), uint16(len(value))), value...)
	}
	switch {
	case private == nil:
		private = sum([]byte{4}, salt, encoded[1])
	case len(encoded[1]) > 0:
		return nil, "", errors.New("a private field is shown without its salt")
	}
	hash, err := hex.DecodeString(event.Hash)
	seqBytes := binary.BigEndian.AppendUint64([]byte{0, 1}, seq)
	version := binary.BigEndian.AppendUint16(nil, event.Version)
	return sum(seqBytes, hash, private, version, encoded[0]), event.Tenant + "\n" + event.Project + "\n", err
}

// climb is the algorithm of RFC 9162, 2.1.3.2, up to the root.
func climb(hash []byte, index, size uint64, path [][]byte) ([]byte, error) {
	if index >= size {
		return nil, errors.New("the leaf is outside of the tree")
	}
	at, last := index, size-1
	for _, beside := range path {
		if last == 0 {
			return nil, errors.New("too many hashes")
		}
		if at&1 == 1 || at == last {
			hash = sum([]byte{1}, beside, hash)
			for at&1 == 0 && at != 0 {
				at, last = at>>1, last>>1
			}
		} else {
			hash = sum([]byte{1}, hash, beside)
		}
		at, last = at>>1, last>>1
	}
	if last != 0 {
		return nil, errors.New("too few hashes")
	}
	return hash, nil
}

func sum(parts ...[]byte) []byte {
	sum := sha256.Sum256(bytes.Join(parts, nil))
	return sum[:]
}

// reader takes lines that end with a line feed, in their one spelling, and keeps the first error.
type reader struct {
	lines []string
	err   error
}

func (r *reader) fail(format string, values ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format, values...)
	}
}

func (r *reader) peek() string {
	if len(r.lines) == 0 {
		return ""
	}
	return r.lines[0]
}

func (r *reader) line() string {
	line, ok := strings.CutSuffix(r.peek(), "\n")
	if !ok {
		r.fail("a line is missing")
		return ""
	}
	r.lines = r.lines[1:]
	return line
}

func (r *reader) expect(line string) {
	if found := r.line(); found != line {
		r.fail("%q where %q must be", found, line)
	}
}

func (r *reader) value(name string) string {
	value, ok := strings.CutPrefix(r.line(), name+" ")
	if !ok {
		r.fail("%s is missing", name)
	}
	return value
}

func (r *reader) number(name string) uint64 {
	text := r.value(name)
	number, err := strconv.ParseUint(text, 10, 63)
	if err != nil || strconv.FormatUint(number, 10) != text {
		r.fail("%s is no number", name)
	}
	return number
}

func (r *reader) hex(name string, length int) []byte {
	text := r.value(name)
	data, err := hex.DecodeString(text)
	if err != nil || len(data) != length || hex.EncodeToString(data) != text {
		r.fail("%s is malformed", name)
		return make([]byte, length)
	}
	return data
}

func (r *reader) base64(name string) []byte {
	return r.hash(r.value(name))
}

func (r *reader) hash(text string) []byte {
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(data) != 32 || base64.StdEncoding.EncodeToString(data) != text {
		r.fail("a hash is malformed")
		return make([]byte, 32)
	}
	return data
}

// hashes up to an empty line or the end, neither of which is read.
func (r *reader) hashes() (list [][]byte) {
	for r.peek() != "" && r.peek() != "\n" && r.err == nil {
		list = append(list, r.hash(r.line()))
	}
	return list
}
