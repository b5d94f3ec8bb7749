package sealog

import (
	"strings"
	"testing"
)

type chainCase struct {
	Name           string
	Events, Expect []string
	Result         ChainResult
}

func chainCases(t *testing.T) []chainCase {
	var vectors struct{ Cases []chainCase }
	readVectors(t, "chains.json", &vectors)
	if len(vectors.Cases) < 30 {
		t.Fatalf("only %d cases", len(vectors.Cases))
	}
	return vectors.Cases
}

func TestVerifyEventsAgreesWithTheVectors(t *testing.T) {
	for _, c := range chainCases(t) {
		var texts [][]byte
		for _, text := range c.Events {
			texts = append(texts, []byte(text))
		}
		var heads []Head
		for _, text := range c.Expect {
			head, err := ParseHead(text)
			if err != nil {
				t.Fatal(err)
			}
			heads = append(heads, head)
		}
		got, err := VerifyEvents(texts, heads...)
		if got.Message == "" {
			t.Errorf("%s: no message", c.Name)
		}
		got.Message = ""
		if err != nil || got != c.Result {
			t.Errorf("%s:\n got %+v, %v\nwant %+v", c.Name, got, err, c.Result)
		}
	}
}

func TestAnEventThatIsNotJSONIsAnErrorNotAVerdict(t *testing.T) {
	for _, text := range []string{"", "[]", `{"log_id":}`, `{"log_id":"x"} {}`, `{"a":1,}`, "{\"a\":\"\xff\"}"} {
		if _, err := VerifyEvents([][]byte{[]byte(text)}); err == nil {
			t.Errorf("%q was accepted", text)
		}
	}
}

func TestAHeadIsANumberAndAHash(t *testing.T) {
	hash := strings.Repeat("ab", 32)
	if head, err := ParseHead("7:" + hash); err != nil || head != (Head{7, hash}) {
		t.Error(head, err)
	}
	for _, text := range []string{"", "7", "0:" + hash, "07:" + hash, "-7:" + hash, "7:" + hash[1:],
		"7:" + strings.ToUpper(hash)} {
		if _, err := ParseHead(text); err == nil {
			t.Errorf("%q was accepted", text)
		}
	}
}
