package printable

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestLineAndText(t *testing.T) {
	for _, test := range []struct{ text, line, lines string }{
		{"tail", "tail", "tail"},
		{"10 µs, 中文 é", "10 µs, 中文 é", "10 µs, 中文 é"},
		{"a\x1b[2J\x1b]0;title\a", `a\x1b[2J\x1b]0;title\x07`, `a\x1b[2J\x1b]0;title\x07`},
		{"a\nPASS\r\nb\n", `a\nPASS\r\nb\n`, "a\n  | PASS\n  | b"},
		{"a\rPASS\tb", `a\rPASS\tb`, `a\rPASS` + "\tb"},
		{"c1 \u009b2J, del \x7f", `c1 \u009b2J, del \u007f`, `c1 \u009b2J, del \u007f`},
		{"not UTF-8 \x9b\xff", `not UTF-8 \x9b\xff`, `not UTF-8 \x9b\xff`},
		{"bidi \u202e, width \u200b, line \u2028, tag \U000e0041",
			`bidi \u202e, width \u200b, line \u2028, tag \udb40\udc41`,
			`bidi \u202e, width \u200b, line \u2028, tag \udb40\udc41`},
	} {
		if got := Line(test.text); got != test.line {
			t.Errorf("Line(%q) is %q, want %q", test.text, got, test.line)
		}
		if got := Text(test.text); got != test.lines {
			t.Errorf("Text(%q) is %q, want %q", test.text, got, test.lines)
		}
	}
}

func TestError(t *testing.T) {
	said, other := errors.New("h0 said: a\nPASS"), errors.New("b\x1b[2J")
	for want, err := range map[string]error{
		"h0 said: a\n  | PASS":                       said,
		"h0 said: a\n  | PASS\nb\\x1b[2J":            errors.Join(said, nil, other),
		"end: h0 said: a\n  | PASS\n  | b\\x1b[2J":   fmt.Errorf("end: %w", errors.Join(said, other)),
		"h0 said: a\n  | PASS and b\\x1b[2J":         fmt.Errorf("%w and %w", said, other),
		"h0 said: a\n  | PASS\nb\\x1b[2J\nb\\x1b[2J": errors.Join(errors.Join(said, other), other),
	} {
		if got := Error(err); got != want {
			t.Errorf("Error(%q) is %q, want %q", err, got, want)
		}
	}
}

// TestWritersShare: several nodes' workers complain at once.
func TestWritersShare(t *testing.T) {
	var out bytes.Buffer
	w := NewWriter(&out)
	var group sync.WaitGroup
	const writers, lines = 8, 200
	for range writers {
		group.Go(func() {
			for range lines {
				if _, err := w.Write([]byte("a\x1b\n")); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	if got := strings.Count(out.String(), `a\x1b`+"\n"); got != writers*lines {
		t.Errorf("%d whole lines of %d", got, writers*lines)
	}
}

// TestPlainTextIsNotCopied: long documents are of printable ASCII almost everywhere.
func TestPlainTextIsNotCopied(t *testing.T) {
	w, text := NewWriter(io.Discard), []byte("{\n\t\"name\": \"h0\"\n}\n")
	if made := testing.AllocsPerRun(100, func() { _, _ = w.Write(text) }); made != 0 {
		t.Errorf("%v allocations, want none", made)
	}
}

// harmless reports whether a text has only printable and allowed characters.
func harmless(text, allowed string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool {
		return !unicode.IsPrint(r) && !strings.ContainsRune(allowed, r)
	})
}

func FuzzPrintable(f *testing.F) {
	for _, seed := range []string{"", "a\x1b[31mPASS\n", "\xc2", "\u009b\u202e\U000e0041",
		"\xf0\x9f\x98\x80\xf0\x9f", "a\xc2a", "\r\nPASS\r"} {
		f.Add(seed, uint8(1))
	}
	f.Fuzz(func(t *testing.T, text string, step uint8) {
		if line := Line(text); !harmless(line, "") || Line(line) != line {
			t.Errorf("Line(%q) is %q", text, line)
		}
		lines := Text(text)
		if !harmless(lines, "\n\t") {
			t.Errorf("Text(%q) is %q", text, lines)
		}
		for i, line := range strings.Split(lines, "\n") {
			if i > 0 && !strings.HasPrefix(line, further) {
				t.Errorf("line %d of Text(%q) is %q, which is not marked", i, text, line)
			}
		}
		// A stream in pieces gives the same output as the whole, except for a character that never
		// ends.
		var whole, pieces bytes.Buffer
		if n, err := NewWriter(&whole).Write([]byte(text)); n != len(text) || err != nil {
			t.Fatal(n, err)
		}
		inPieces := NewWriter(&pieces)
		for rest := text; rest != ""; {
			n := min(len(rest), int(step%7)+1)
			if _, err := inPieces.Write([]byte(rest[:n])); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		if whole.String() != pieces.String() || !harmless(whole.String(), "\n\t") {
			t.Errorf("%q became %q whole and %q in pieces", text, whole.String(), pieces.String())
		}
		// JSON keeps its meaning.
		if !utf8.ValidString(text) {
			return
		}
		var document bytes.Buffer
		encoder := json.NewEncoder(NewWriter(&document))
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(map[string]string{text: text}); err != nil {
			t.Fatal(err)
		}
		back := map[string]string{}
		if err := json.Unmarshal(document.Bytes(), &back); err != nil || back[text] != text {
			t.Errorf("JSON of %q became %q, %v", text, document.String(), err)
		}
	})
}

func TestClip(t *testing.T) {
	for text, want := range map[string]string{"": "", strings.Repeat("é", 60): strings.Repeat("é", 60),
		strings.Repeat("é", 61): strings.Repeat("é", 60) + "..."} {
		if got := Clip(text); got != want {
			t.Errorf("%q: got %q", text, got)
		}
	}
}
