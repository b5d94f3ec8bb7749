package sealog

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
)

type trustCase struct {
	Name, Kind, Vkey, Note, Event, Proof, Policy, Result string
	Keys                                                 []string
}

func trustCases(t *testing.T, file, kind string, least int) []trustCase {
	var vectors struct{ Cases []trustCase }
	readVectors(t, "trust/"+file, &vectors)
	cases := slices.DeleteFunc(vectors.Cases, func(c trustCase) bool { return c.Kind != kind })
	if len(cases) < least {
		t.Fatalf("only %d cases", len(cases))
	}
	return cases
}

func TestProofsOfTheVectorsHaveTheirResults(t *testing.T) {
	for _, c := range trustCases(t, "proofs.json", "", 40) {
		if c.Event == "" { // of a head
			continue
		}
		vkey := strings.Fields(c.Policy)[1]
		got, err := VerifyProof([]byte(c.Event), []byte(c.Proof), vkey)
		want := ProofResult{Reason: c.Result}
		if c.Result == "ok" || c.Result == "quorum" { // the log's key alone asks for no witness
			want = ProofResult{Holds: true}
		}
		if err != nil || got.Holds != want.Holds || got.Reason != want.Reason || got.Holds == (got.Message != "") {
			t.Errorf("%s: got %+v, %v, want %+v", c.Name, got, err, want)
		}
	}
}

func TestKeysOfTheVectorsExceptThoseOfWitnesses(t *testing.T) {
	for _, c := range trustCases(t, "notes.json", "vkey", 20) {
		want := c.Result == "ok" && !strings.Contains(c.Name, "witness")
		if got := parseLogKey(c.Vkey) != nil; got != want {
			t.Errorf("%s: %t", c.Name, got)
		}
	}
}

func TestNotesOfTheVectorsThatAreOfOneLog(t *testing.T) {
	tried := 0
	for _, c := range trustCases(t, "notes.json", "note", 20) {
		if len(c.Keys) != 1 || parseLogKey(c.Keys[0]) == nil {
			continue
		}
		tried++
		got := "ok"
		n, err := readNote(c.Note)
		if err == nil {
			err = n.verify(parseLogKey(c.Keys[0]))
		}
		var why *refused
		if errors.As(err, &why) {
			got = why.reason
		}
		if want := strings.Replace(c.Result, "unknown", "signature", 1); got != want {
			t.Errorf("%s: got %s, want %s", c.Name, got, want)
		}
	}
	if tried < 20 {
		t.Fatalf("only %d cases", tried)
	}
}

func TestInclusionProofsOfTheVectors(t *testing.T) {
	var vectors struct {
		Cases []struct {
			Kind, Name, Result, Index, Size, Leaf, Root string
			Path                                        []string
		}
	}
	readVectors(t, "trust/trees.json", &vectors)
	tried := 0
	for _, c := range vectors.Cases {
		if c.Kind != "inclusion" || c.Result == "size" || c.Result == "too long" { // texts cannot say these
			continue
		}
		tried++
		index, _ := strconv.ParseUint(c.Index, 10, 64)
		size, _ := strconv.ParseUint(c.Size, 10, 64)
		var path [][32]byte
		for _, hash := range c.Path {
			path = append(path, [32]byte(unbase64(hash)))
		}
		root, err := rootFromPath([32]byte(unbase64(c.Leaf)), index, size, path)
		fits := err == nil && root == [32]byte(unbase64(c.Root))
		if fits != (c.Result == "ok") {
			t.Errorf("%s: fits is %t, wanted %s", c.Name, fits, c.Result)
		}
	}
	if tried < 70 {
		t.Fatalf("only %d cases", tried)
	}
}

func TestAPathWithAHashTooManyIsRefusedAlsoWhereItLeadsToTheRoot(t *testing.T) {
	leaf, beside := digest([]byte{0}, []byte("a")), digest([]byte{0}, []byte("b"))
	if _, err := rootFromPath(leaf, 1, 2, [][32]byte{beside}); err != nil {
		t.Error(err)
	}
	if root, err := rootFromPath(leaf, 0, 1, [][32]byte{beside}); err == nil {
		t.Errorf("a tree of one leaf has a path, to %x", root)
	}
}

func TestBase64HasOneSpelling(t *testing.T) {
	if got := unbase64("AQ=="); len(got) != 1 || got[0] != 1 {
		t.Error(got)
	}
	for _, text := range []string{"AR==", "AQ", "AQ=", "AQ==\n", "A\nQ==", "-_-_", "AQ==AQ=="} {
		if got := unbase64(text); got != nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func TestAKeyThatIsNoneIsAnError(t *testing.T) {
	for _, vkey := range []string{" ", "log.example", "log.example+1cc758f9+\xff"} {
		_, err := VerifyProof(nil, nil, vkey)
		var problem *ValidationError
		if !errors.As(err, &problem) || problem.Field != "VKey" {
			t.Errorf("%q: %v", vkey, err)
		}
	}
}
