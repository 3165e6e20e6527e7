// Package printable makes foreign text safe to print to a terminal, a report or a log. Foreign text
// comes from others: names and comments of captures, outputs of programs in nodes, contents of
// files, answers of other processes. Printed raw, it could move the cursor, hide lines, or set the
// terminal's title or its answers (ECMA-48 control sequences). It could change the direction of
// writing (Unicode's bidirectional controls), or add lines that look like verdicts.
//
// Characters that unicode.IsPrint rejects are escaped as in Go's string literals. Inside the
// strings of a JSON document JSON's escapes are used, and the document keeps its meaning.
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

// further is the prefix of each line of a text after the first.
const further = "  | "

// Line returns text as one line without control characters.
func Line(text string) string {
	return escape(text, func(rune) (string, bool) { return "", false })
}

// Text returns text as lines without control characters other than tabs. Each line after the first
// has a prefix, so that no line looks like a line of another author.
func Text(text string) string {
	text = strings.TrimRight(strings.ReplaceAll(text, "\r\n", "\n"), "\n")
	return escape(text, func(r rune) (string, bool) {
		if r == '\n' {
			return "\n" + further, true
		}
		return "\t", r == '\t'
	})
}

// Clip shortens a long text in a message. The result may still have control characters.
func Clip(text string) string {
	const most = 60
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + "..."
	}
	return text
}

// Error returns the text of an error. Joined errors (errors.Join) are Railbed's own lines; each of
// them is passed through Text.
func Error(err error) string {
	joined, is := err.(interface{ Unwrap() []error })
	if !is {
		return Text(err.Error())
	}
	var whole, parts []string
	for _, one := range joined.Unwrap() {
		whole, parts = append(whole, one.Error()), append(parts, Error(one))
	}
	if strings.Join(whole, "\n") != err.Error() { // the error has words besides its parts
		return Text(err.Error())
	}
	return strings.Join(parts, "\n")
}

// escape replaces each unprintable character by the result of instead, or by its escape if instead
// has none.
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

// escapeOf returns the escape of a character. From DEL on, the escape is valid in JSON, too; other
// control characters do not occur in JSON strings.
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

// Writer escapes the unprintable characters of a stream, except line breaks and tabs. It is the
// last resort for text composed without Line or Text. It is safe for concurrent use.
type Writer struct {
	to io.Writer

	mu sync.Mutex // serialises writes, and guards begun
	// begun holds the first bytes of a character whose last bytes were not written yet.
	begun []byte
}

// NewWriter returns a Writer that writes to to.
func NewWriter(to io.Writer) *Writer { return &Writer{to: to} }

// Write implements io.Writer. After an error it reports 0 bytes as written.
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

// isPlain reports whether a text consists of printable ASCII, line breaks and tabs, as most long
// texts do.
func isPlain(text []byte) bool {
	for _, c := range text {
		if (c < ' ' || c > '~') && c != '\n' && c != '\t' {
			return false
		}
	}
	return true
}
