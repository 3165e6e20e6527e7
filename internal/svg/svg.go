// Package svg has what pictures share, in files of their own and on pages: elements, paths, axes, legends,
// the width of texts and the theme.
package svg

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
)

// Style is the style sheet of pictures that are files of their own. Class t is a title, k an explanation, n a
// name in the middle of its place, and bg the background.
const Style = `text{font-family:system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;fill:#16202b}
.bg{fill:#fff}.t{font-size:17px;font-weight:600}.k{fill:#475569;font-size:12px}
.n{font-size:12.5px;font-weight:600;text-anchor:middle}
@media (prefers-color-scheme:dark){.bg{fill:#10161d}text{fill:#e6edf3}.k{fill:#9fb0c3}}
`

// File are the attributes of a picture that is a file of its own.
const File = `xmlns="http://www.w3.org/2000/svg" role="img"`

// Escape makes text safe within elements and attributes.
func Escape(text string) string {
	var escaped strings.Builder
	_ = xml.EscapeText(&escaped, []byte(text)) // a Builder never fails
	return escaped.String()
}

// Number formats a length with at most one decimal.
func Number(f float64) string { return strings.TrimSuffix(fmt.Sprintf("%.1f", f), ".0") }

// Drawing writes the elements of a picture.
type Drawing struct{ io.Writer }

// Printf writes elements that have no method. Texts of users in them need Escape.
func (d Drawing) Printf(format string, args ...any) { fmt.Fprintf(d, format, args...) }

// Open begins the picture.
func (d Drawing) Open(attributes string, width, height float64) {
	d.Printf(`<svg %s viewBox="0 0 %[2]s %[3]s" width="%[2]s" height="%[3]s">`+"\n", attributes,
		Number(width), Number(height))
}

// Head writes the style sheet, which Style begins, and the background of a picture that is a file of its own.
func (d Drawing) Head(style string) {
	d.Printf("<style>\n%s%s</style>\n<rect class=\"bg\" width=\"100%%\" height=\"100%%\"/>\n", Style, style)
}

// Rect draws a rectangle with rounded corners.
func (d Drawing) Rect(class string, x, y, width, height, radius float64) {
	d.Printf(`<rect class="%s" x="%s" y="%s" width="%s" height="%s" rx="%s"/>`, class, Number(x), Number(y),
		Number(width), Number(height), Number(radius))
}

// Text writes a text, whose base line is at y.
func (d Drawing) Text(class string, x, y float64, text string) {
	d.Printf(`<text class="%s" x="%s" y="%s">%s</text>`, class, Number(x), Number(y), Escape(text))
}

// Line draws a path. A width of 0 is the width of the class.
func (d Drawing) Line(class string, width float64, path string) {
	stroke := ""
	if width > 0 {
		stroke = fmt.Sprintf(` stroke-width="%s"`, Number(width))
	}
	d.Printf(`<path class="%s"%s d="%s"/>`, class, stroke, path)
}

// Path is the data of a path.
type Path struct{ strings.Builder }

// MoveTo begins a path at a position.
func MoveTo(x, y float64) *Path { return new(Path).To("M", x, y) }

// To adds a command with its positions.
func (p *Path) To(command string, positions ...float64) *Path {
	p.WriteString(command)
	for i, at := range positions {
		if i > 0 {
			p.WriteByte(' ')
		}
		p.WriteString(Number(at))
	}
	return p
}

// letter is the width of a letter as a share of the font size. No font is available, so it is generous.
const letter = 0.62

// Width estimates the width of a text of a font size.
func Width(text string, size float64) float64 { return letter * size * float64(len([]rune(text))) }

// Fit shortens a text of a font size to a width.
func Fit(text string, size, width float64) string {
	letters := []rune(text)
	most := max(1, int(width/(letter*size)))
	if len(letters) <= most {
		return text
	}
	return string(letters[:most-1]) + "…"
}

// Legend draws keys beside each other, and below each other where a line is full.
type Legend struct {
	Drawing
	Left, Right float64
	Y           float64 // base line of the next key
	used        float64 // by the keys of its line
}

// Key draws a key: a sample 26 wide, from x on and around y, and its text.
func (l *Legend) Key(text string, sample func(x, y float64)) {
	const gap, size, line = 34, 12, 20
	width := gap + Width(text, size) + 18
	if l.Left+l.used+width > l.Right && l.used > 0 {
		l.used, l.Y = 0, l.Y+line
	}
	sample(l.Left+l.used, l.Y-4)
	l.Text("k", l.Left+l.used+gap, l.Y, text)
	l.Printf("\n")
	l.used += width
}

// LineKey draws the key of a line, with a width as for Line.
func (l *Legend) LineKey(text, class string, width float64) {
	l.Key(text, func(x, y float64) { l.Line(class, width, MoveTo(x, y).To("h", 26).String()) })
}
