// Package printable stands between foreign text and a terminal, a report or a log. Foreign text is
// what others wrote: names and comments of captures, outputs of programs in nodes, contents of files,
// answers of other processes. Printed as it is, it could move the cursor, hide lines, set the
// terminal's title or its answers (ECMA-48 control sequences), turn the direction of writing (Unicode's
// bidirectional controls), and add lines that look like verdicts.
//
// What is not printable by unicode.IsPrint is escaped as in Go's string literals. Inside the strings of a
// JSON document the escapes are JSON's, and the document keeps its meaning.
package printable

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// further begins each line of a text but the first.
const further = "  | "

// Line makes text one line without control characters.
func Line(text string) string {
	return escape(text, func(rune) (string, bool) { return "", false })
}

// Text makes text lines without control characters other than tabs. Each line after the first is
// marked, so that none looks like a line of another author.
func Text(text string) string {
	text = strings.TrimRight(strings.ReplaceAll(text, "\r\n", "\n"), "\n")
	return escape(text, func(r rune) (string, bool) {
		if r == '\n' {
			return "\n" + further, true
		}
		return "\t", r == '\t'
	})
}

// Error is the text of an error. Errors that were joined (errors.Join) are Railbed's own lines, each
// of them a Text.
func Error(err error) string {
	joined, is := err.(interface{ Unwrap() []error })
	if !is {
		return Text(err.Error())
	}
	var whole, parts []string
	for _, one := range joined.Unwrap() {
		whole, parts = append(whole, one.Error()), append(parts, Error(one))
	}
	if strings.Join(whole, "\n") != err.Error() { // it has words of its own
		return Text(err.Error())
	}
	return strings.Join(parts, "\n")
}

// escape replaces each character that is not printable by what instead has for it, else by its escape.
func escape(text string, instead func(rune) (string, bool)) string {
	var escaped strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		switch replacement, has := instead(r); {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&escaped, `\x%02x`, text[0])
		case has:
			escaped.WriteString(replacement)
		case unicode.IsPrint(r):
			escaped.WriteRune(r)
		default:
			escaped.WriteString(escapeOf(r))
		}
		text = text[size:]
	}
	return escaped.String()
}

// escapeOf is the escape of a character. From DEL on it is JSON's, too; JSON has no other control
// characters in its strings.
func escapeOf(r rune) string {
	switch {
	case r == '\n':
		return `\n`
	case r == '\r':
		return `\r`
	case r == '\t':
		return `\t`
	case r < 0x20:
		return fmt.Sprintf(`\x%02x`, r)
	case r < 0x10000:
		return fmt.Sprintf(`\u%04x`, r)
	}
	high, low := utf16.EncodeRune(r)
	return fmt.Sprintf(`\u%04x\u%04x`, high, low)
}

// Writer escapes what is not printable in a stream but line breaks and tabs. It is what is left where
// a text was composed without Line or Text. It is safe for concurrent use.
type Writer struct {
	to io.Writer

	mu sync.Mutex // serialises writes, and guards begun
	// begun is the beginning of a character whose end was not written yet.
	begun []byte
}

// NewWriter returns a Writer to another one.
func NewWriter(to io.Writer) *Writer { return &Writer{to: to} }

// Write implements io.Writer. The bytes of an error count as not written.
func (w *Writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.begun) == 0 && isPlain(p) {
		if _, err := w.to.Write(p); err != nil {
			return 0, err
		}
		return len(p), nil
	}
	all := append(w.begun, p...)
	whole := len(all)
	for i := 1; i < utf8.UTFMax && i <= len(all); i++ {
		if last := all[len(all)-i:]; utf8.RuneStart(last[0]) {
			if !utf8.FullRune(last) {
				whole = len(all) - i
			}
			break
		}
	}
	text := escape(string(all[:whole]), func(r rune) (string, bool) {
		return string(r), r == '\n' || r == '\t'
	})
	if _, err := io.WriteString(w.to, text); err != nil {
		return 0, err
	}
	w.begun = append([]byte(nil), all[whole:]...)
	return len(p), nil
}

// isPlain reports whether a text is of printable ASCII, line breaks and tabs, as most long texts are.
func isPlain(text []byte) bool {
	for _, c := range text {
		if (c < ' ' || c > '~') && c != '\n' && c != '\t' {
			return false
		}
	}
	return true
}
