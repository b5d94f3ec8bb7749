package sealog

import (
	"errors"
	"slices"
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

func TestAKeyThatIsNoneIsAnError(t *testing.T) {
	for _, vkey := range []string{" ", "log.example", "log.example+1cc758f9+\xff"} {
		_, err := VerifyProof(nil, nil, vkey)
		var problem *ValidationError
		if !errors.As(err, &problem) || problem.Field != "VKey" {
			t.Errorf("%q: %v", vkey, err)
		}
	}
}
