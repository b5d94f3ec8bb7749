package sealog

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"strings"
	"testing"
)

func readVectors(t *testing.T, name string, into any) {
	t.Helper()
	data, err := os.ReadFile("../../vectors/" + name)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatal(err)
	}
}

func TestCanonicalTextAgreesWithTheVectors(t *testing.T) {
	var vectors struct {
		Cases []struct {
			Name, Input     string
			InputParts      [][2]any `json:"input_parts"`
			Canonical       *string
			CanonicalSHA256 string `json:"canonical_sha256"`
		}
	}
	readVectors(t, "metadata.json", &vectors)
	if len(vectors.Cases) < 40 {
		t.Fatalf("only %d cases", len(vectors.Cases))
	}
	for _, c := range vectors.Cases {
		input := c.Input
		for _, part := range c.InputParts {
			input += strings.Repeat(part[0].(string), int(part[1].(float64)))
		}
		text, err := canonical([]byte(input))
		sum := sha256.Sum256(text)
		switch {
		case c.CanonicalSHA256 != "":
			if err != nil || hex.EncodeToString(sum[:]) != c.CanonicalSHA256 {
				t.Errorf("%s: %v, or another text", c.Name, err)
			}
		case c.Canonical == nil && err == nil:
			t.Errorf("%s: %q was accepted", c.Name, input)
		case c.Canonical != nil && (err != nil || string(text) != *c.Canonical):
			t.Errorf("%s: %q, %v; want %q", c.Name, text, err, *c.Canonical)
		}
	}
}
