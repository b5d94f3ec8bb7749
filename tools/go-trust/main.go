// Runs the vectors of vectors/trust through golang.org/x/mod/sumdb: roots, proofs, notes, vkeys, tile paths and the
// C2SP half of event proofs. What x/mod does not have (ranges, salts, heads, policies) is not run, and is counted.
//
// A case marked "go": "lax" is one that x/mod accepts and Sealog refuses; "differs" is outside of what x/mod defines.
package main

import (
	"bytes"
	"crypto/ed25519"
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

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

type vector struct {
	Name, Kind, Result, Go                string
	Size, Index, Old, Root, Leaf          string
	OldRoot                               string `json:"old_root"`
	Inclusion, Consistency                string
	LeafHash                              string `json:"leaf_hash"`
	Vkey, Skey, Text, Note, Proof, SHA256 string
	Keys, Path                            json.RawMessage
	Policy, Entry                         string
}

// errSkip says that x/mod has no opinion on a case.
var errSkip = errors.New("not known to x/mod")

func main() {
	var passed, failed, skipped int
	for _, name := range []string{"sizes", "trees", "leaves", "notes", "tiles", "proofs", "salts", "heads", "entries", "policies"} {
		run := map[string]func(vector) error{
			"sizes": size, "trees": tree, "leaves": leaf, "notes": notes, "tiles": tile, "proofs": proof,
		}[name]
		for _, v := range read(filepath.Join(os.Args[1], name+".json")) {
			if run == nil || v.Go == "differs" {
				skipped++
				continue
			}
			switch err := run(v); {
			case errors.Is(err, errSkip):
				skipped++
			case err != nil:
				failed++
				fmt.Printf("%s: %s: %v\n", name, v.Name, err)
			default:
				passed++
			}
		}
	}
	fmt.Printf("%d passed, %d failed, %d not known to x/mod\n", passed, failed, skipped)
	if failed > 0 {
		os.Exit(10)
	}
}

func read(path string) []vector {
	data, err := os.ReadFile(path)
	if err == nil {
		var file struct{ Cases []vector }
		if err = json.Unmarshal(data, &file); err == nil {
			return file.Cases
		}
	}
	fmt.Fprintf(os.Stderr, "%s: %v\n", path, err)
	os.Exit(2)
	return nil
}

// agree compares whether x/mod accepts with the result of the vector.
func agree(v vector, err error) error {
	switch accepted := err == nil; {
	case v.Go == "lax" && !accepted:
		return fmt.Errorf("the vector says that x/mod accepts it, but: %v", err)
	case v.Go != "lax" && accepted != (v.Result == "ok"):
		return fmt.Errorf("x/mod says %v, but the result is %s", err, v.Result)
	}
	return nil
}

func hash(text string) (h tlog.Hash) {
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(data) != len(h) {
		panic("a vector has a malformed hash: " + text)
	}
	copy(h[:], data)
	return h
}

func hashes(raw json.RawMessage) (list []tlog.Hash) {
	var texts []string
	if err := json.Unmarshal(raw, &texts); err != nil {
		panic(err)
	}
	for _, text := range texts {
		list = append(list, hash(text))
	}
	return list
}

// stored is the tree of the vectors as x/mod stores it: entry i is i in decimal digits.
var (
	stored []tlog.Hash
	leaves int64
)

var reader = tlog.HashReaderFunc(func(indexes []int64) (list []tlog.Hash, err error) {
	for _, index := range indexes {
		list = append(list, stored[index])
	}
	return list, nil
})

func grow(size int64) error {
	for ; leaves < size; leaves++ {
		more, err := tlog.StoredHashes(leaves, []byte(strconv.FormatInt(leaves, 10)), reader)
		if err != nil {
			return err
		}
		stored = append(stored, more...)
	}
	return nil
}

// size makes every proof of a tree with x/mod and compares all of them with ours.
func size(v vector) error {
	n, err := strconv.ParseInt(v.Size, 10, 64)
	if err != nil {
		return err
	}
	if err := grow(n); err != nil {
		return err
	}
	root, err := tlog.TreeHash(n, reader)
	if err != nil {
		return err
	}
	if n > 0 && root != hash(v.Root) {
		return fmt.Errorf("the root is %v", root)
	}
	if n == 0 && hash(v.Root) != tlog.Hash(sha256.Sum256(nil)) {
		return errors.New("the root of the empty tree is not the hash of nothing")
	}
	if v.Inclusion == "" {
		return nil
	}
	inclusion, consistency := sha256.New(), sha256.New()
	for at := int64(0); at < n; at++ {
		record, err := tlog.ProveRecord(n, at, reader)
		if err != nil {
			return err
		}
		grown, err := tlog.ProveTree(n, at+1, reader)
		if err != nil {
			return err
		}
		for _, h := range record {
			inclusion.Write(h[:])
		}
		for _, h := range grown {
			consistency.Write(h[:])
		}
	}
	if hex.EncodeToString(inclusion.Sum(nil)) != v.Inclusion || hex.EncodeToString(consistency.Sum(nil)) != v.Consistency {
		return errors.New("x/mod makes other proofs")
	}
	return nil
}

func tree(v vector) error {
	n, err := strconv.ParseInt(v.Size, 10, 64)
	if err != nil {
		return agree(v, err)
	}
	if v.Kind == "inclusion" {
		index, err := strconv.ParseInt(v.Index, 10, 64)
		if err == nil {
			err = tlog.CheckRecord(hashes(v.Path), n, hash(v.Root), index, hash(v.Leaf))
		}
		return agree(v, err)
	}
	if v.Kind == "consistency" {
		old, err := strconv.ParseInt(v.Old, 10, 64)
		if err == nil {
			err = tlog.CheckTree(hashes(v.Path), n, hash(v.Root), old, hash(v.OldRoot))
		}
		return agree(v, err)
	}
	return errSkip
}

func leaf(v vector) error {
	data, err := hex.DecodeString(v.Leaf)
	if err == nil && tlog.RecordHash(data) != hash(v.LeafHash) {
		err = errors.New("the hash of the leaf is another one")
	}
	return err
}

// cosigner verifies signatures of type 04, which x/mod does not know.
type cosigner struct {
	name string
	id   uint32
	key  ed25519.PublicKey
}

func (c cosigner) Name() string    { return c.name }
func (c cosigner) KeyHash() uint32 { return c.id }
func (c cosigner) Verify(msg, sig []byte) bool {
	if len(sig) != 8+ed25519.SignatureSize || binary.BigEndian.Uint64(sig) >= 1<<63 {
		return false
	}
	message := fmt.Sprintf("cosignature/v1\ntime %d\n%s", binary.BigEndian.Uint64(sig), msg)
	return ed25519.Verify(c.key, []byte(message), sig[8:])
}

func verifier(vkey string) (note.Verifier, error) {
	parts := strings.SplitN(vkey, "+", 3)
	if len(parts) == 3 {
		key, err := base64.StdEncoding.DecodeString(parts[2])
		if err == nil && len(key) == 33 && key[0] == 4 {
			sum := sha256.Sum256([]byte(parts[0] + "\n" + string(key)))
			return cosigner{parts[0], binary.BigEndian.Uint32(sum[:]), key[1:]}, nil
		}
	}
	return note.NewVerifier(vkey)
}

func open(msg string, keys []string) error {
	var list []note.Verifier
	for _, key := range keys {
		v, err := verifier(key)
		if err != nil {
			return err
		}
		list = append(list, v)
	}
	_, err := note.Open([]byte(msg), note.VerifierList(list...))
	return err
}

func notes(v vector) error {
	switch v.Kind {
	case "vkey":
		_, err := note.NewVerifier(v.Vkey)
		return agree(v, err)
	case "sign":
		signer, err := note.NewSigner(v.Skey)
		if err != nil {
			return err
		}
		signed, err := note.Sign(&note.Note{Text: v.Text}, signer)
		if err == nil && string(signed) != v.Note {
			err = fmt.Errorf("x/mod signs %q", signed)
		}
		return err
	case "note":
		var keys []string
		if err := json.Unmarshal(v.Keys, &keys); err != nil {
			return err
		}
		return agree(v, open(v.Note, keys))
	}
	return errSkip
}

// x/mod writes the height of tiles into their paths, and `data` for entries.
func tilePath(path string) string {
	path = strings.Replace(path, "tile/entries/", "tile/data/", 1)
	return strings.Replace(path, "tile/", "tile/8/", 1)
}

func tile(v vector) error {
	switch v.Kind {
	case "path":
		var path string
		if err := json.Unmarshal(v.Path, &path); err != nil {
			return err
		}
		if strings.HasPrefix(path, "tile/data/") {
			return errSkip // the name is ours to refuse
		}
		_, err := tlog.ParseTilePath(tilePath(path))
		return agree(v, err)
	case "tile":
		var path string
		if err := json.Unmarshal(v.Path, &path); err != nil {
			return err
		}
		n, err := strconv.ParseInt(v.Size, 10, 64)
		if err != nil {
			return err
		}
		if err := grow(n); err != nil {
			return err
		}
		t, err := tlog.ParseTilePath(tilePath(path))
		if err != nil {
			return err
		}
		data, err := tlog.ReadTileData(t, reader)
		if sum := sha256.Sum256(data); err == nil && hex.EncodeToString(sum[:]) != v.SHA256 {
			err = errors.New("x/mod makes another tile")
		}
		return err
	}
	return errSkip
}

// proof checks the half that C2SP defines, for cases that name the entry: from the entry to the checkpoint.
func proof(v vector) error {
	if v.Entry == "" {
		return errSkip
	}
	head, msg, _ := strings.Cut(v.Proof, "\n\n")
	lines := strings.Split(head, "\n")
	if len(lines) < 3 || lines[0] != "c2sp.org/tlog-proof@v1" {
		return errors.New("the header is another one")
	}
	index, err := strconv.ParseInt(strings.TrimPrefix(lines[2], "index "), 10, 64)
	if err != nil {
		return err
	}
	var path []tlog.Hash
	for _, line := range lines[3:] {
		path = append(path, hash(line))
	}
	var keys []string
	for _, line := range strings.Split(v.Policy, "\n") {
		words := strings.Fields(line)
		if len(words) > 1 && words[0] == "log" {
			keys = append(keys, words[1])
		} else if len(words) > 2 && words[0] == "witness" {
			keys = append(keys, words[2])
		}
	}
	if err := open(msg, keys); err != nil {
		return err
	}
	tree, err := tlog.ParseTree(bytes.Replace([]byte(msg), []byte(strings.SplitN(msg, "\n", 2)[0]), []byte("go.sum database tree"), 1))
	if err != nil {
		return err
	}
	return tlog.CheckRecord(path, tree.N, tree.Hash, index, tlog.RecordHash([]byte(v.Entry)))
}
