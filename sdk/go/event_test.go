package sealog

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"math/big"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestEventsAreWrittenAsEncodingJSONWritesThemButForHTML(t *testing.T) {
	type inner struct {
		Name string `json:"name"`
		Size int    `json:"size,omitempty"`
	}
	values := map[string]any{
		"text": "caf\u00e9 \U0001f600 \"\\\b\f\n\r\t\x01\x7f", "html": "<a href='x'>&</a>",
		"zero": 0, "negative": int64(-5),
		"float": 1.5, "tiny": 1e-9, "huge": 1e30, "whole": 3.0, "single": float32(0.1), "unsigned": uint8(7),
		"number": json.Number("12345678901234567890"), "list": []any{1, nil, true, "x", []any{}},
		"strings": []string{"a", "b"}, "map": map[string]string{"b": "1", "a": "2"}, "empty": map[string]any{},
		"struct": inner{"n", 0}, "pointer": &inner{"p", 2}, "nothing": (*inner)(nil), "big": big.NewInt(1 << 60),
		"address": netip.MustParseAddr("192.0.2.1"), "keys": map[int]bool{2: true, 1: false}, "array": [2]int{1, 2},
		"nested": map[string]any{"a": map[string]any{"b": []any{map[string]any{"c": nil}}}},
	}
	for name, value := range values {
		event := Event{Action: "a.b", Resource: "r/1", Metadata: map[string]any{name: value}}
		var want bytes.Buffer
		encoder := json.NewEncoder(&want)
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(event); err != nil {
			t.Fatal(err)
		}
		got, err := encode(nil, &event)
		if err != nil || string(got)+"\n" != want.String() {
			t.Errorf("%s: %s, %v; want %s", name, got, err, want.String())
		}
	}
}

func TestRawJSONIsSentInItsCanonicalSpelling(t *testing.T) {
	raw := json.RawMessage(` { "n" : 1.0, "t": "\u00e9" } `)
	event := Event{Action: "a.b", Metadata: map[string]any{"raw": raw}}
	got, err := encode(nil, &event)
	if want := `{"action":"a.b","metadata":{"raw":{"n":1.0,"t":"é"}}}`; err != nil || string(got) != want {
		t.Errorf("%s, %v", got, err)
	}
}

func TestAValueThatJSONLacksIsNamedByItsPath(t *testing.T) {
	type line struct {
		Price float64 `json:"price"`
		Note  string
		Skip  func() `json:"-"`
	}
	type model struct{ CreatedAt time.Time }
	cycle := []any{nil}
	cycle[0] = map[string]any{"again": cycle}
	deep := any("x")
	for range 1200 {
		deep = []any{deep}
	}
	cases := []struct {
		value any
		field string
		says  string
	}{
		{math.NaN(), "metadata.v", "NaN"},
		{[]any{1, map[string]any{"p": math.Inf(-1)}}, "metadata.v[1].p", "-Inf"},
		{[]line{{Price: 1}, {Price: math.NaN()}}, "metadata.v[1].price", "NaN"},
		{&line{Note: "a\xff"}, "metadata.v.Note", "UTF-8"},
		{map[string]float64{"x": math.NaN()}, "metadata.v.x", "NaN"},
		{time.Now(), "metadata.v", "ISO 8601"},
		{&model{}, "metadata.v.CreatedAt", "ISO 8601"},
		{[]byte("x"), "metadata.v", "hex"},
		{func() {}, "metadata.v", "not a JSON value"},
		{make(chan int), "metadata.v", "not a JSON value"},
		{map[bool]int{true: 1}, "metadata.v", "keys"},
		{map[string]any{"\xff": 1}, "metadata.v", "UTF-8"},
		{"a\xed\xa0\x80b", "metadata.v", "surrogate"},
		{json.Number("1,5"), "metadata.v", "not a number"},
		{json.Number("true"), "metadata.v", "not a number"},
		{json.RawMessage("{"), "metadata.v", "not JSON"},
		{map[string]any{"loop": cycle}, "metadata", "contains itself"},
		{deep, "metadata", "too deeply"},
	}
	for _, c := range cases {
		_, err := encode(nil, &Event{Action: "a.b", Metadata: map[string]any{"v": c.value}})
		wrong := &ValidationError{} // stays empty if there is no error
		if !errors.As(err, &wrong) || wrong.Code != "client/invalid_event" ||
			!strings.HasPrefix(wrong.Field, c.field) || !strings.Contains(wrong.Message, c.says) {
			t.Errorf("%T: %v, field %q; want %q in %q", c.value, err, wrong.Field, c.says, c.field)
		}
	}
}

func TestTheEdgesOfTextsAndSizes(t *testing.T) {
	fits := func(event Event) string {
		_, err := encode(nil, &event)
		var wrong *ValidationError
		if errors.As(err, &wrong) {
			return wrong.Field
		}
		return ""
	}
	if fits(Event{Action: "a", Resource: strings.Repeat("é", 255)}) != "" {
		t.Error("255 characters were refused")
	}
	if fits(Event{Action: "a", Resource: strings.Repeat("é", 256)}) != "resource" {
		t.Error("256 characters were accepted")
	}
	if fits(Event{Action: "a", SessionID: "a\x00"}) != "session_id" || fits(Event{}) != "action" {
		t.Error("NUL or a missing action was accepted")
	}
	room := eventBytesMax - len(`{"action":"a","metadata":{"t":""}}`)
	if fits(Event{Action: "a", Metadata: map[string]any{"t": strings.Repeat("x", room)}}) != "" {
		t.Error("262,144 bytes were refused")
	}
	if fits(Event{Action: "a", Metadata: map[string]any{"t": strings.Repeat("x", room+1)}}) != "event" {
		t.Error("262,145 bytes were accepted")
	}
}

func TestCallbacksGetTheEventAsItWasLogged(t *testing.T) {
	metadata := map[string]any{"big": json.Number("12345678901234567890"), "t": "x"}
	event := Event{Action: "a.b", ActorID: "u", Metadata: metadata}
	text, err := encode(nil, &event)
	if got := decode(text); err != nil || !reflect.DeepEqual(got, event) {
		t.Errorf("%+v, %v", got, err)
	}
}

func FuzzTextsAreWrittenAsCanonicalText(f *testing.F) {
	f.Add("plain \u2028 \" \\ \x1f é \U0001f600")
	f.Add("\xed\xa0\x80")
	f.Fuzz(func(t *testing.T, text string) {
		out, ok := appendText(nil, text)
		if ok != (strings.ToValidUTF8(text, "") == text) {
			t.Fatalf("%q: accepted %v", text, ok)
		}
		if !ok {
			return
		}
		var back string
		if err := json.Unmarshal(out, &back); err != nil || back != text {
			t.Fatalf("%q became %s: %v", text, out, err)
		}
		if again, err := canonical(out); err != nil || string(again) != string(out) {
			t.Fatalf("%s is not canonical: %s, %v", out, again, err)
		}
	})
}
