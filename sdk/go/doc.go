// Package sealog logs audit events to Sealog, the tamper-evident audit log, with a queue that loses nothing
// by accident, and checks that the service still has what it acknowledged.
//
//	client, err := sealog.New(sealog.Options{}) // SEALOG_URL and SEALOG_API_KEY
//	receipt, err := client.Log(ctx, sealog.Event{Action: "user.login", ActorID: "u-17"})
package sealog
