package main

import (
	"example.org/app/actions"
	sealog "github.com/sealog/sealog/sdk/go"
)

func main() {
	_ = actions.UserLogn(sealog.Event{})                        // wrong: no such action
	_ = actions.UserLogin(sealog.Event{Actor: "u-17"})          // wrong: no such field
	_ = actions.OrderShipped_66a30e86(sealog.Event{})           // wrong: no required field
	_ = actions.OrderShipped_66a30e86("DHL", sealog.Event{})    // wrong: no tracking-id
	_ = actions.AiActInferenceLogged("s-1", sealog.Event{})     // wrong: no model_version
	_ = actions.OrderShipped_66a30e86("DHL", 1, sealog.Event{}) // complete
}
