package plan

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/netip"
	"slices"
)

// WriteJSON writes the plan as JSON, indented by two spaces: the bytes of a json.Encoder that escapes no
// HTML. An Encoder holds the whole document several times, and that of 65,000 links has 770 MB. WriteJSON
// holds one node, link or switch, and of a switch's routes each set of next hops.
func (p *Plan) WriteJSON(w io.Writer) error {
	j := &jsonWriter{out: bufio.NewWriterSize(w, 64<<10)}
	j.encoder = json.NewEncoder(&j.text)
	j.encoder.SetEscapeHTML(false)
	frame := *p
	frame.Nodes, frame.Switches, frame.Links = example(p.Nodes), example(p.Switches), example(p.Links)
	err := j.object("", &frame,
		listOf(j, "nodes", p.Nodes, func(prefix string, n *Node) error { return j.object(prefix, n) }),
		listOf(j, "switches", p.Switches, j.writeSwitch),
		listOf(j, "links", p.Links, func(prefix string, l *Link) error { return j.object(prefix, l) }))
	if err != nil {
		return err
	}
	_ = j.out.WriteByte('\n') // Flush returns its error
	return j.out.Flush()
}

// jsonWriter writes indented JSON in parts.
type jsonWriter struct {
	out     *bufio.Writer
	encoder *json.Encoder // to text
	text    bytes.Buffer
}

// encode is the JSON of a value, whose lines have a prefix but for the first. The next call overwrites it.
func (j *jsonWriter) encode(prefix string, v any) ([]byte, error) {
	j.text.Reset()
	j.encoder.SetIndent(prefix, "  ")
	err := j.encoder.Encode(v)
	return bytes.TrimSuffix(j.text.Bytes(), []byte("\n")), err
}

// jsonList is a list in a JSON object. Its function writes the elements, with commas between them. Their
// lines have the prefix but for the first.
type jsonList struct {
	key   string
	write func(prefix string) error
}

func listOf[T any](j *jsonWriter, key string, elements []T, write func(string, *T) error) jsonList {
	return jsonList{key, func(prefix string) error {
		for i := range elements {
			if i > 0 {
				_, _ = j.out.WriteString(",\n" + prefix) // the next write returns its error
			}
			if err := write(prefix, &elements[i]); err != nil {
				return err
			}
		}
		return nil
	}}
}

// example is a list with one zero element, unless the list has none.
func example[T any](list []T) []T {
	list = slices.Clone(list[:min(1, len(list))])
	clear(list)
	return list
}

// object writes an object. The lists are in the order of its fields; those that have elements have one in v.
func (j *jsonWriter) object(prefix string, v any, lists ...jsonList) error {
	text, err := j.encode(prefix, v)
	if err != nil {
		return err
	}
	if len(lists) > 0 {
		text = bytes.Clone(text)
	}
	field, element := "\n"+prefix+"  ", "\n"+prefix+"    "
	for _, l := range lists {
		_, list, found := bytes.Cut(text, []byte(field+`"`+l.key+`": [`+element))
		if !found {
			continue // it has no elements
		}
		_, _ = j.out.Write(text[:len(text)-len(list)]) // the next write returns its error
		if err := l.write(prefix + "    "); err != nil {
			return err
		}
		text = list[bytes.Index(list, []byte(field+"]")):]
	}
	_, err = j.out.Write(text)
	return err
}

func (j *jsonWriter) writeSwitch(prefix string, s *Switch) error {
	frame := *s
	frame.Routes = RouteTable{list: make([]Route, min(1, s.Routes.Len()))}
	return j.object(prefix, &frame, jsonList{"routes", func(prefix string) error {
		encode := func(r Route) ([]byte, error) { return j.encode(prefix, &r) }
		return s.Routes.writeJSON(j.out, ",\n"+prefix, encode)
	}})
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

// writeJSON writes the routes as elements of a list. What they share is encoded once, around the destination.
func (t RouteTable) writeJSON(out io.Writer, separator string, encode func(Route) ([]byte, error)) error {
	var err error
	around := func(r *Route) (text [2][]byte) {
		shared := *r
		shared.Dst = netip.Prefix{} // which is "" in JSON, and the first field
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
		line, _ = route.Dst.AppendText(line) // no error is possible
		line = append(append(line, '"'), text[1]...)
		if _, err = out.Write(line); err != nil {
			return err
		}
		line = append(line[:0], separator...)
	}
	return nil
}
