package plan

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/netip"
)

// WriteJSON writes the plan as JSON, indented by two spaces. It writes the same bytes as a
// json.Encoder that does not escape HTML. An Encoder holds the whole document several times, and
// the document for 65,000 links has 770 MB. WriteJSON holds one node, link or switch, and of a
// switch's routes each set of next hops.
func (p *Plan) WriteJSON(w io.Writer) error {
	j := newJSONWriter(w)
	j.encoder.SetEscapeHTML(false)
	j.indent, j.line, j.colon = "  ", "\n", ": "
	if err := j.plan(p); err != nil {
		return err
	}
	_ = j.out.WriteByte('\n') // Flush returns its error
	return j.out.Flush()
}

// jsonWriter writes JSON in parts.
type jsonWriter struct {
	out     *bufio.Writer
	encoder *json.Encoder // to text
	text    bytes.Buffer
	// indent is the indentation of each level. line precedes each element, and colon follows each
	// key.
	indent, line, colon string
}

// newJSONWriter returns a jsonWriter that writes without spaces, the same bytes as json.Marshal.
func newJSONWriter(w io.Writer) *jsonWriter {
	j := &jsonWriter{out: bufio.NewWriterSize(w, 64<<10), colon: ":"}
	j.encoder = json.NewEncoder(&j.text)
	return j
}

func (j *jsonWriter) plan(p *Plan) error {
	frame := *p
	frame.Nodes, frame.Switches, frame.Links = emptyList(p.Nodes), emptyList(p.Switches), emptyList(p.Links)
	return j.object("", &frame,
		listOf(j, "nodes", p.Nodes, func(prefix string, n *Node) error { return j.object(prefix, n) }),
		listOf(j, "switches", p.Switches, j.planSwitch),
		listOf(j, "links", p.Links, func(prefix string, l *Link) error { return j.object(prefix, l) }))
}

func (j *jsonWriter) planSwitch(prefix string, s *Switch) error {
	if s.Routes.IsZero() {
		return j.object(prefix, s)
	}
	frame := *s
	frame.Routes = RouteTable{list: make([]Route, 1)}
	return j.object(prefix, &frame,
		jsonList{"routes", s.Routes.Len(), frame.Routes, func(prefix string) error {
			encode := func(r Route) ([]byte, error) { return j.encode(prefix, &r) }
			return s.Routes.writeJSON(j.out, ","+j.line+prefix, encode)
		}})
}

// encode returns the JSON of a value. All lines except the first start with the prefix. The next
// call overwrites the result.
func (j *jsonWriter) encode(prefix string, v any) ([]byte, error) {
	j.text.Reset()
	j.encoder.SetIndent(prefix, j.indent)
	err := j.encoder.Encode(v)
	return bytes.TrimSuffix(j.text.Bytes(), []byte("\n")), err
}

// jsonList is a list in a JSON object.
type jsonList struct {
	key   string
	count int
	// instead is the value that stands for the list in the object, unless the list is empty.
	instead any
	// write writes the elements, separated by commas. All lines except the first start with the
	// prefix.
	write func(prefix string) error
}

func listOf[T any](j *jsonWriter, key string, elements []T, write func(string, *T) error) jsonList {
	return jsonList{key, len(elements), nil, func(prefix string) error {
		for i := range elements {
			if i > 0 {
				_, _ = j.out.WriteString("," + j.line + prefix) // the next write returns its error
			}
			if err := write(prefix, &elements[i]); err != nil {
				return err
			}
		}
		return nil
	}}
}

// emptyList returns nil in place of a list with elements.
func emptyList[T any](list []T) []T {
	if len(list) > 0 {
		return nil
	}
	return list
}

// object writes an object with its lists, which are in the order of its fields.
func (j *jsonWriter) object(prefix string, v any, lists ...jsonList) error {
	text, err := j.encode(prefix, v)
	if err != nil {
		return err
	}
	if len(lists) > 0 {
		text = bytes.Clone(text)
	}
	field := prefix + j.indent
	for _, l := range lists {
		if l.count == 0 {
			continue
		}
		instead, err := j.encode(field, l.instead)
		if err != nil {
			return err
		}
		key := `"` + l.key + `"` + j.colon
		before, after, _ := bytes.Cut(text, append([]byte(key), instead...))
		_, _ = j.out.Write(before) // the last write returns its error
		_, _ = j.out.WriteString(key + "[" + j.line + field + j.indent)
		if err := l.write(field + j.indent); err != nil {
			return err
		}
		_, _ = j.out.WriteString(j.line + field + "]")
		text = after
	}
	_, err = j.out.Write(text)
	return err
}

// MarshalJSON implements json.Marshaler.
func (t RouteTable) MarshalJSON() ([]byte, error) {
	var text bytes.Buffer
	text.WriteByte('[')
	err := t.writeJSON(&text, ",", func(r Route) ([]byte, error) { return json.Marshal(r) })
	text.WriteByte(']')
	return text.Bytes(), err
}

// UnmarshalJSON implements json.Unmarshaler.
func (t *RouteTable) UnmarshalJSON(text []byte) error {
	*t = RouteTable{}
	return json.Unmarshal(text, &t.list)
}

// writeJSON writes the routes as elements of a list. The part that routes share is encoded once and
// written around each destination.
func (t RouteTable) writeJSON(out io.Writer, separator string, encode func(Route) ([]byte, error)) error {
	var err error
	around := func(r *Route) (text [2][]byte) {
		shared := *r
		shared.Dst = netip.Prefix{} // "" in JSON, and the first field
		var whole []byte
		whole, err = encode(shared)
		text[0], text[1], _ = bytes.Cut(bytes.Clone(whole), []byte(`""`))
		return text
	}
	var line []byte
	for route, text := range withShared(t, around) {
		if err != nil {
			return err
		}
		line = append(append(line, text[0]...), '"')
		line, _ = route.Dst.AppendText(line) // AppendText returns no error
		line = append(append(line, '"'), text[1]...)
		if _, err = out.Write(line); err != nil {
			return err
		}
		line = append(line[:0], separator...)
	}
	return nil
}
