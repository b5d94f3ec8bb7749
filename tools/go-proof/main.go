// Checks a .tlog-proof file with filippo.io/torchwood, which other people wrote and which knows nothing of
// Sealog:
//
//	go run . POLICY ENTRY PROOF
//
// ENTRY has the text of the entry that the proof is about. How an event leads to that text is section 8 of
// docs/format.md; this program checks the way from there to the signatures. It exits with 0 only if all of it
// holds.
package main

import (
	"fmt"
	"log"
	"os"

	"filippo.io/torchwood"
	"golang.org/x/mod/sumdb/tlog"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 4 {
		log.Fatal("usage: go run . POLICY ENTRY PROOF")
	}
	var files [3][]byte
	for at, path := range os.Args[1:] {
		data, err := os.ReadFile(path)
		if err != nil {
			log.Fatal(err)
		}
		files[at] = data
	}
	policy, err := torchwood.ParsePolicy(files[0])
	if err != nil {
		log.Fatalf("no verdict: the policy is malformed: %v", err)
	}
	if err := torchwood.VerifyProof(policy, tlog.RecordHash(files[1]), files[2]); err != nil {
		log.Fatalf("refused: %v", err)
	}
	fmt.Println("valid: the entry is in a log that the policy accepts")
}
