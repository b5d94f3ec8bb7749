package sealog

import (
	"bytes"
	"encoding"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Event is what an application logs: docs/spec.md, section 2.1. Empty texts count as absent. Values of
// Metadata are JSON values, or anything that encoding/json can write except times and bytes, whose spelling
// is the application's choice. Events that the client returns have numbers as json.Number.
type Event struct {
	Action       string         `json:"action"` // required, for example "user.login"
	ActorID      string         `json:"actor_id,omitempty"`
	ActorType    string         `json:"actor_type,omitempty"`
	Resource     string         `json:"resource,omitempty"`
	ResourceType string         `json:"resource_type,omitempty"`
	Severity     string         `json:"severity,omitempty"`
	SessionID    string         `json:"session_id,omitempty"`
	TSClient     string         `json:"ts_client,omitempty"`
	Metadata     map[string]any `json:"metadata,omitempty"`
}

const (
	eventBytesMax = 262_144
	depthMax      = 1000
)

type textField struct {
	name  string
	value *string
}

func (e *Event) texts() [8]textField {
	return [8]textField{{"action", &e.Action}, {"actor_id", &e.ActorID}, {"actor_type", &e.ActorType},
		{"resource", &e.Resource}, {"resource_type", &e.ResourceType}, {"severity", &e.Severity},
		{"session_id", &e.SessionID}, {"ts_client", &e.TSClient}}
}

// encode appends the body of an event, or returns which field is wrong and what to do.
func encode(dst []byte, e *Event) ([]byte, error) {
	if e.Action == "" {
		return dst, invalid("action", `is required, for example "user.login"`)
	}
	start, ok := len(dst), true
	dst = append(dst, '{')
	for _, field := range e.texts() {
		text := *field.value
		if text == "" {
			continue
		}
		if len(text) > 255 && utf8.RuneCountInString(text) > 255 {
			return dst, invalid(field.name, fmt.Sprintf("has %d characters; at most 255 are allowed. "+
				"Put long texts into Metadata", utf8.RuneCountInString(text)))
		}
		if strings.IndexByte(text, 0) >= 0 {
			return dst, invalid(field.name, "contains NUL; remove it")
		}
		if len(dst) > start+1 {
			dst = append(dst, ',')
		}
		dst = append(append(append(dst, '"'), field.name...), '"', ':')
		if dst, ok = appendText(dst, text); !ok {
			return dst, notText(field.name)
		}
	}
	if e.Metadata != nil {
		dst = append(dst, `,"metadata":`...)
		if dst, ok = appendValue(dst, e.Metadata, 0); !ok {
			if wrong := find(reflect.ValueOf(e.Metadata), "metadata", nil); wrong != nil {
				return dst, wrong
			}
			return dst, invalid("metadata", "changed while it was read; log a copy")
		}
	}
	dst = append(dst, '}')
	if len(dst)-start > eventBytesMax {
		return dst, tooLarge(e, len(dst)-start)
	}
	return dst, nil
}

func invalid(field, problem string) *ValidationError {
	return &ValidationError{Error{Code: "client/invalid_event", Field: field, Message: field + ": " + problem}}
}

func notText(path string) *ValidationError {
	return invalid(path, "is not UTF-8: it has a lone surrogate or bytes of another encoding; "+
		"use strings.ToValidUTF8")
}

func tooLarge(e *Event, size int) *ValidationError {
	largest, most := "action", 0
	for name, value := range e.Metadata {
		if text, _ := appendValue(nil, value, 0); len(text) > most {
			largest, most = "metadata."+name, len(text)
		}
	}
	return invalid("event", fmt.Sprintf("has %d bytes; at most 262,144 are allowed. The largest part is %s: "+
		"shorten it, or store it elsewhere and log its hash", size, largest))
}

// appendText escapes as little as possible. It returns false for a text that is not UTF-8.
func appendText(dst []byte, text string) ([]byte, bool) {
	dst = append(dst, '"')
	begin := 0
	for i := 0; i < len(text); {
		c := text[i]
		switch {
		case c >= 0x20 && c < utf8.RuneSelf && c != '"' && c != '\\':
			i++
		case c >= utf8.RuneSelf:
			r, size := utf8.DecodeRuneInString(text[i:])
			if r == utf8.RuneError && size == 1 {
				return dst, false
			}
			i += size
		default:
			dst = appendRune(append(dst, text[begin:i]...), rune(c))
			i++
			begin = i
		}
	}
	return append(append(dst, text[begin:]...), '"'), true
}

// appendValue writes a value of metadata. It returns false if JSON cannot carry it; find names it then,
// because keeping a path here would cost as much as the encoding.
func appendValue(dst []byte, value any, depth int) ([]byte, bool) {
	if depth > depthMax {
		return dst, false
	}
	switch v := value.(type) {
	case nil:
		return append(dst, "null"...), true
	case string:
		return appendText(dst, v)
	case bool:
		return strconv.AppendBool(dst, v), true
	case int:
		return strconv.AppendInt(dst, int64(v), 10), true
	case int64:
		return strconv.AppendInt(dst, v, 10), true
	case float64:
		return appendFloat(dst, v)
	case map[string]any:
		keys := make([]string, 0, 16)
		for key := range v {
			keys = append(keys, key)
		}
		slices.Sort(keys) // as encoding/json does: equal events have equal texts
		for i, key := range keys {
			var ok bool
			if dst, ok = appendText(append(dst, "{,"[min(i, 1)]), key); !ok {
				return dst, false
			}
			if dst, ok = appendValue(append(dst, ':'), v[key], depth+1); !ok {
				return dst, false
			}
		}
		if len(keys) == 0 {
			dst = append(dst, '{')
		}
		return append(dst, '}'), true
	case []any:
		return appendList(dst, v, depth)
	case []string:
		return appendList(dst, v, depth)
	}
	return appendOther(dst, value)
}

func appendList[T any](dst []byte, list []T, depth int) ([]byte, bool) {
	dst = append(dst, '[')
	for i, part := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		var ok bool
		if dst, ok = appendValue(dst, any(part), depth+1); !ok {
			return dst, false
		}
	}
	return append(dst, ']'), true
}

func appendFloat(dst []byte, f float64) ([]byte, bool) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return dst, false
	}
	if abs := math.Abs(f); abs != 0 && (abs < 1e-6 || abs >= 1e21) { // as encoding/json writes it
		dst = strconv.AppendFloat(dst, f, 'e', -1, 64)
		if n := len(dst); dst[n-4] == 'e' && dst[n-3] == '-' && dst[n-2] == '0' {
			dst = append(dst[:n-2], dst[n-1]) // e-09 is e-9
		}
		return dst, true
	}
	return strconv.AppendFloat(dst, f, 'f', -1, 64), true
}

// appendOther leaves rare types to encoding/json, after find has checked what it would write silently: a text
// that is not UTF-8 as U+FFFD, bytes as Base64, a time in the zone that the machine happens to have.
func appendOther(dst []byte, value any) ([]byte, bool) {
	if find(reflect.ValueOf(value), "", nil) != nil {
		return dst, false
	}
	if raw, ok := value.(json.RawMessage); ok {
		text, err := canonical(raw)
		return append(dst, text...), err == nil
	}
	out := bytes.NewBuffer(dst)
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	if encoder.Encode(value) != nil {
		return dst, false
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), true
}

var (
	timeType      = reflect.TypeFor[time.Time]()
	rawType       = reflect.TypeFor[json.RawMessage]()
	marshalerType = reflect.TypeFor[json.Marshaler]()
	textType      = reflect.TypeFor[encoding.TextMarshaler]()
)

// find returns the first value that JSON cannot carry, with its path. above has the maps, slices and pointers
// that contain v.
func find(v reflect.Value, path string, above []uintptr) *ValidationError {
	if !v.IsValid() {
		return nil
	}
	t := v.Type()
	switch {
	case t == timeType:
		return invalid(path, "is a time; send an ISO 8601 text: value.UTC().Format(time.RFC3339Nano)")
	case t == rawType:
		if _, err := canonical(v.Bytes()); err != nil {
			return invalid(path, "is a json.RawMessage that is not JSON: "+err.Error())
		}
		return nil
	case t.Implements(marshalerType) || t.Implements(textType):
		if v.Kind() == reflect.Pointer && v.IsNil() {
			return nil
		}
		if v.Kind() == reflect.Pointer && t.Elem() == timeType {
			return find(v.Elem(), path, above)
		}
		if v.CanInterface() {
			if _, err := json.Marshal(v.Interface()); err != nil {
				return invalid(path, "cannot be written as JSON: "+err.Error())
			}
		}
		return nil
	}
	switch v.Kind() {
	case reflect.Map, reflect.Slice, reflect.Pointer:
		if v.IsNil() {
			return nil
		}
		for _, pointer := range above {
			if pointer == v.Pointer() && v.Kind() != reflect.Slice {
				return invalid(path, "contains itself; JSON has no cycles")
			}
		}
		if above = append(above, v.Pointer()); len(above) > depthMax {
			return invalid("metadata", "is nested too deeply, or contains itself; flatten it")
		}
	}
	switch v.Kind() {
	case reflect.String:
		if !utf8.ValidString(v.String()) {
			return notText(path)
		}
		if t == reflect.TypeFor[json.Number]() {
			text, err := canonical([]byte(v.String()))
			if err != nil || strings.IndexByte("-0123456789", text[0]) < 0 {
				return invalid(path, fmt.Sprintf("is the json.Number %q, which is not a number", v.String()))
			}
		}
	case reflect.Float32, reflect.Float64:
		if math.IsNaN(v.Float()) || math.IsInf(v.Float(), 0) {
			return invalid(path, fmt.Sprintf("is %v, which JSON cannot carry; send nil or a text", v.Float()))
		}
	case reflect.Pointer, reflect.Interface:
		return find(v.Elem(), path, above)
	case reflect.Map:
		for _, key := range sortedKeys(v) {
			if key.Kind() == reflect.String && !utf8.ValidString(key.String()) {
				return notText(path)
			}
			if wrong := find(v.MapIndex(key), path+"."+fmt.Sprint(key), above); wrong != nil {
				return wrong
			}
		}
		key := t.Key()
		isNumber := key.Kind() >= reflect.Int && key.Kind() <= reflect.Uintptr
		if !key.Implements(textType) && key.Kind() != reflect.String && !isNumber {
			return invalid(path, fmt.Sprintf("has keys of type %s; use texts as keys", key))
		}
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 && v.Kind() == reflect.Slice {
			return invalid(path, "is bytes; send a text, for example hex.EncodeToString(value)")
		}
		for i := range v.Len() {
			if wrong := find(v.Index(i), fmt.Sprintf("%s[%d]", path, i), above); wrong != nil {
				return wrong
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			field := t.Field(i)
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if name == "-" || !field.IsExported() && !field.Anonymous {
				continue
			}
			inside := path + "." + field.Name
			if name != "" {
				inside = path + "." + name
			} else if field.Anonymous {
				inside = path
			}
			if wrong := find(v.Field(i), inside, above); wrong != nil {
				return wrong
			}
		}
	case reflect.Func, reflect.Chan, reflect.Complex64, reflect.Complex128, reflect.UnsafePointer:
		return invalid(path, t.String()+" is not a JSON value; convert it first")
	}
	return nil
}

func sortedKeys(v reflect.Value) []reflect.Value {
	keys := v.MapKeys()
	sort.Slice(keys, func(i, j int) bool { return fmt.Sprint(keys[i]) < fmt.Sprint(keys[j]) })
	return keys
}

// decode reads an event that encode has written.
func decode(text []byte) Event {
	var e Event
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber() // a float64 would change large numbers
	_ = decoder.Decode(&e)
	return e
}
