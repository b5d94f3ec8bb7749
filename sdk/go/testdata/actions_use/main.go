// Events by the functions that `sealog actions --emit go` wrote: complete ones compile.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"example.org/app/actions"
	sealog "github.com/sealog/sealog/sdk/go"
)

func main() {
	events := []sealog.Event{
		actions.UserLogin(sealog.Event{ActorID: "u-17", Metadata: map[string]any{"method": "password"}}),
		actions.OrderShipped_66a30e86("DHL", 4711, sealog.Event{Metadata: map[string]any{"carrier": "no", "weight": nil}}),
		actions.OrderReturned(true, map[string]any{}, []any{}, sealog.Event{}),
		actions.OrderShipped_1feff949(sealog.Event{Resource: "order/7"}),
		actions.Import(9, "XL", sealog.Event{}),
		actions.AiActInferenceLogged("s-1", "2", sealog.Event{}),
	}
	texts, err := json.Marshal(events[1:5])
	want := `[{"action":"order.shipped","metadata":{"carrier":"DHL","tracking-id":4711,"weight":null}},` +
		`{"action":"order \"returned\" */","metadata":{"actor_id":[],"class":true,"metadata":{}}},` +
		`{"action":"order_shipped","resource":"order/7"},{"action":"import","metadata":{"9 lives":9,"größe":"XL"}}]`
	if err != nil || string(texts) != want {
		fmt.Printf("%s\n%v\n", texts, err)
		os.Exit(1)
	}
}
