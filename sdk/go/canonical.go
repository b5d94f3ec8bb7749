package sealog

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Canonical text: docs/format.md, section 1. encoding/json loses what was hashed: 1.0 becomes 1, of two equal
// keys one is dropped, a lone surrogate becomes U+FFFD. So the text is scanned here. It must be strict JSON;
// what comes out is the spelling that Sealog hashes.

type scanner struct {
	data []byte
	pos  int
}

// canonical returns the canonical text of data, which must be one JSON value and nothing else.
func canonical(data []byte) ([]byte, error) {
	s := scanner{data: data}
	out, err := s.value(make([]byte, 0, len(data)))
	if err == nil && s.next() != 0 {
		err = s.expected("the end")
	}
	return out, err
}

// next skips white space and returns the byte there; 0 at the end. NUL is no JSON, so it cannot be mistaken.
func (s *scanner) next() byte {
	for s.pos < len(s.data) {
		switch c := s.data[s.pos]; c {
		case ' ', '\t', '\n', '\r':
			s.pos++
		case 0:
			return 1
		default:
			return c
		}
	}
	return 0
}

func (s *scanner) expected(what string) error {
	return fmt.Errorf("byte %d: %s is expected here", s.pos, what)
}

// value appends the canonical text of the value at the position. It has a stack of its own, because metadata
// may be nested deeper than any call stack.
func (s *scanner) value(dst []byte) (_ []byte, err error) {
	var closers []byte
	for {
		switch c := s.next(); c {
		case '"':
			dst, err = s.text(dst)
		case '{', '[':
			closer := c + 2 // in ASCII: { } and [ ]
			dst = append(dst, c)
			s.pos++
			closers = append(closers, closer)
			if s.next() != closer {
				if c == '{' {
					if dst, err = s.key(dst); err != nil {
						return dst, err
					}
				}
				continue
			}
		default:
			dst, err = s.literal(dst)
		}
		if err != nil {
			return dst, err
		}
		for { // A value is complete. Does another one follow, or does what contains it end?
			if len(closers) == 0 {
				return dst, nil
			}
			closer, c := closers[len(closers)-1], s.next()
			if c != ',' && c != closer {
				return dst, s.expected("',' or '" + string(closer) + "'")
			}
			dst = append(dst, c)
			s.pos++
			if c == ',' {
				if closer == '}' {
					if dst, err = s.key(dst); err != nil {
						return dst, err
					}
				}
				break
			}
			closers = closers[:len(closers)-1]
		}
	}
}

// key appends a key and its colon.
func (s *scanner) key(dst []byte) ([]byte, error) {
	if s.next() != '"' {
		return dst, s.expected("a key in double quotes")
	}
	dst, err := s.text(dst)
	if err == nil && s.next() != ':' {
		err = s.expected("a colon")
	}
	s.pos++
	return append(dst, ':'), err
}

func (s *scanner) literal(dst []byte) ([]byte, error) {
	begin := s.pos
	for s.pos < len(s.data) && strings.IndexByte("+-.0123456789eEtrufalsn", s.data[s.pos]) >= 0 {
		s.pos++
	}
	word := s.data[begin:s.pos]
	switch string(word) {
	case "true", "false", "null":
		return append(dst, word...), nil
	}
	if len(word) == 0 || !json.Valid(word) {
		s.pos = begin
		return dst, s.expected("a JSON value")
	}
	return append(dst, word...), nil
}

// text appends the canonical spelling of the string at the position, quotes included.
func (s *scanner) text(dst []byte) ([]byte, error) {
	dst = append(dst, '"')
	s.pos++
	for {
		begin := s.pos
		for s.pos < len(s.data) && s.data[s.pos] >= 0x20 && s.data[s.pos] != '"' && s.data[s.pos] != '\\' {
			s.pos++
		}
		if !utf8.Valid(s.data[begin:s.pos]) {
			return dst, s.expected("a string in UTF-8")
		}
		dst = append(dst, s.data[begin:s.pos]...)
		if s.pos == len(s.data) || s.data[s.pos] < 0x20 {
			return dst, s.expected("the rest of a string, without control characters")
		}
		s.pos++
		if s.data[s.pos-1] == '"' {
			return append(dst, '"'), nil
		}
		r, err := s.escape()
		if err != nil {
			return dst, err
		}
		dst = appendRune(dst, r)
	}
}

// escape reads what follows a backslash. Half of a surrogate pair is returned as it is.
func (s *scanner) escape() (rune, error) {
	if s.pos < len(s.data) {
		if at := strings.IndexByte(`"\/bfnrt`, s.data[s.pos]); at >= 0 {
			s.pos++
			return rune("\"\\/\b\f\n\r\t"[at]), nil
		}
	}
	high, ok := s.unit(s.pos)
	if !ok {
		return 0, s.expected("a valid escape")
	}
	s.pos += 5
	if high >= 0xd800 && high < 0xdc00 && s.pos < len(s.data) && s.data[s.pos] == '\\' {
		if low, ok := s.unit(s.pos + 1); ok && low >= 0xdc00 && low < 0xe000 {
			s.pos += 6
			return 0x10000 + (high-0xd800)<<10 + low - 0xdc00, nil
		}
	}
	return high, nil
}

// unit reads u and four hex digits.
func (s *scanner) unit(at int) (rune, bool) {
	if at+5 > len(s.data) || s.data[at] != 'u' {
		return 0, false
	}
	var unit [2]byte
	if _, err := hex.Decode(unit[:], s.data[at+1:at+5]); err != nil {
		return 0, false
	}
	return rune(unit[0])<<8 | rune(unit[1]), true
}

func appendRune(dst []byte, r rune) []byte {
	if r < 0x80 {
		if at := strings.IndexByte("\"\\\b\f\n\r\t", byte(r)); at >= 0 {
			return append(dst, '\\', `"\bfnrt`[at])
		}
	}
	if r < 0x20 || r >= 0xd800 && r < 0xe000 {
		const digits = "0123456789abcdef"
		return append(dst, '\\', 'u', digits[r>>12], digits[r>>8&15], digits[r>>4&15], digits[r&15])
	}
	return utf8.AppendRune(dst, r)
}
