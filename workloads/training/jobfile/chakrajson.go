package jobfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// readJSON reads a trace in one of the two JSON forms of Chakra. The jsonizer writes the metadata and then
// the nodes as JSON values one after the other, each in the JSON form of its protobuf message. The feeder
// reads one object with the nodes in the list workload_graph; there comm_size and the like are keys of the
// node, and runtime is its duration_micros.
func (c *chakra) readJSON() error {
	d := json.NewDecoder(bytes.NewReader(c.Content))
	for first := true; ; first = false {
		offset, message, err := c.value(d, 0)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		graph := json.NewDecoder(bytes.NewReader(message))
		switch keys, err := keysOf(message); {
		case err != nil:
			return c.errorAt(offset, "read node: %v", err)
		case keys["workloadgraph"] != nil:
			err = c.graph(graph, offset)
			if err != nil {
				return err
			}
		case first && keys["type"] == nil: // the metadata, which is not needed
		default:
			if err := c.nodeJSON(offset, keys); err != nil {
				return err
			}
		}
	}
}

// value returns the next value of a decoder, and its offset in the file. The decoder's input begins at base.
func (c *chakra) value(d *json.Decoder, base int) (offset int, value json.RawMessage, err error) {
	offset = base + int(d.InputOffset())
	offset += len(c.Content[offset:]) - len(bytes.TrimLeft(c.Content[offset:], " \t\r\n,:"))
	if err := d.Decode(&value); errors.Is(err, io.EOF) {
		return offset, nil, err
	} else if err != nil {
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			offset = base + int(syntax.Offset) - 1 // Offset counts the wrong byte, too
		}
		return offset, nil, c.errorAt(offset, "read JSON: %v", err)
	}
	return offset, value, nil
}

// graph reads the nodes of an object that has already been decoded once.
func (c *chakra) graph(d *json.Decoder, base int) error {
	var err error
	for token := json.Token(nil); err == nil && token != json.Delim('['); {
		if token, err = d.Token(); token == json.Delim('{') {
			continue
		}
		if key, is := token.(string); is && keyOf(key) != "workloadgraph" {
			_, _, err = c.value(d, base)
		}
	}
	for err == nil && d.More() {
		offset, message, err := c.value(d, base)
		if err != nil {
			return err
		}
		keys, err := keysOf(message)
		if err != nil {
			return c.errorAt(offset, "read node: %v", err)
		}
		if err := c.nodeJSON(offset, keys); err != nil {
			return err
		}
	}
	if err != nil {
		return c.errorAt(base, "workload_graph: want a list of nodes")
	}
	return nil
}

// keyOf returns the form of a key that is the same for dataDeps and data_deps, Id and id.
func keyOf(key string) string { return strings.ToLower(strings.ReplaceAll(key, "_", "")) }

func keysOf(message json.RawMessage) (map[string]json.RawMessage, error) {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(message, &object); err != nil || object == nil {
		return nil, fmt.Errorf("want an object, not %s", shown(string(message)))
	}
	keys := map[string]json.RawMessage{}
	for key, value := range object {
		if keys[keyOf(key)] != nil {
			return nil, fmt.Errorf("%s is there twice, want it once", shown(key))
		}
		keys[keyOf(key)] = value
	}
	return keys, nil
}

func (c *chakra) nodeJSON(offset int, keys map[string]json.RawMessage) error {
	node := chakraNode{offset: offset, numbers: map[string]uint64{}}
	if id, err := numberOf(keys["id"]); err == nil {
		node.id = id // for errors about other keys
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		var err error
		switch value := keys[key]; key {
		case "id":
			node.id, err = numberOf(value)
		case "name":
			node.name, err = valueOf[string](value, "a string")
		case "type", "nodetype":
			if node.kind, err = kindOf(value); err == nil {
				err = checkKind(node.kind)
			}
		case "ctrldeps", "datadeps":
			err = node.dependsJSON(value)
		case "durationmicros", "runtime":
			if node.micros, err = numberOf(value); err == nil {
				err = checkDuration(node.micros)
			}
		case "attr":
			err = node.attributesJSON(value)
		case "commtype", "commsize", "commsrc", "commdst", "commtag":
			node.numbers["comm_"+strings.TrimPrefix(key, "comm")], err = numberOf(value)
		case "numops":
			node.numbers["num_ops"], err = numberOf(value)
		case "pgname":
			node.group, err = groupOf(value)
		}
		if err != nil {
			return c.errorAt(offset, "%s of node %d: %v", key, node.id, err)
		}
	}
	return c.add(node)
}

func (n *chakraNode) dependsJSON(value json.RawMessage) error {
	list, err := valueOf[[]json.RawMessage](value, "a list of nodes")
	for _, one := range list {
		id, err := numberOf(one)
		if err != nil {
			return err
		}
		n.after = append(n.after, id)
	}
	return err
}

// attributesJSON keeps the attributes that are numbers or name a group.
func (n *chakraNode) attributesJSON(value json.RawMessage) error {
	list, err := valueOf[[]json.RawMessage](value, "a list of attributes")
	if err != nil {
		return err
	}
	for _, one := range list {
		keys, err := keysOf(one)
		if err != nil {
			return err
		}
		name, err := valueOf[string](keys["name"], "a string")
		if err != nil {
			return fmt.Errorf("name of an attribute: %w", err)
		}
		n.numbers[name] = 0
		for key, value := range keys {
			floats := key == "doubleval" || key == "floatval"
			if name == "pg_name" && strings.HasSuffix(key, "val") && !floats {
				if n.group, err = groupOf(value); err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
				continue
			}
			switch key {
			case "doubleval", "floatval":
				number, err := floatOf(value)
				if err != nil && mustBeWhole(name) {
					return fmt.Errorf("%s: %w", name, err)
				}
				n.numbers[name] = number
				if name == "pg_name" {
					n.group = strconv.FormatUint(number, 10)
				}
			case "int32val", "int64val", "uint32val", "uint64val", "sint32val", "sint64val", "fixed32val",
				"fixed64val", "sfixed32val", "sfixed64val", "boolval":
				if n.numbers[name], err = numberOf(value); err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
			}
		}
	}
	return nil
}

// groupOf reads the name of a group, which tools write as a string or as a number.
func groupOf(value json.RawMessage) (string, error) {
	var number json.Number // it also takes a string with a number
	if err := json.Unmarshal(value, &number); err == nil {
		return number.String(), nil
	}
	return valueOf[string](value, "a string or a number")
}

// valueOf reads a value of a type.
func valueOf[T any](value json.RawMessage, want string) (v T, err error) {
	if err := json.Unmarshal(value, &v); err != nil {
		return v, fmt.Errorf("%s, want %s", shown(string(value)), want)
	}
	return v, nil
}

// numberOf reads a whole number. In the JSON form of protobuf, numbers of 64 bits are strings.
func numberOf(value json.RawMessage) (uint64, error) {
	switch text := strings.Trim(string(value), `"`); text {
	case "true":
		return 1, nil
	case "false":
		return 0, nil
	default:
		if n, err := strconv.ParseUint(text, 10, 64); err == nil {
			return n, nil
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s, want a whole number", shown(text))
		}
		return uint64(n), nil
	}
}

// floatOf reads a whole number that a tool wrote as a floating-point number. NaN and infinities are strings.
func floatOf(value json.RawMessage) (uint64, error) {
	text := strings.Trim(string(value), `"`)
	number, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0, fmt.Errorf("%s, want a whole number", shown(text))
	}
	return whole(number)
}

// chakraTypes are the names of node types, by number.
var chakraTypes = []string{"INVALID_NODE", "METADATA_NODE", "MEM_LOAD_NODE", "MEM_STORE_NODE", "COMP_NODE",
	"COMM_SEND_NODE", "COMM_RECV_NODE", "COMM_COLL_NODE"}

// kindOf reads the name or the number of a node type.
func kindOf(value json.RawMessage) (uint64, error) {
	if i := slices.Index(chakraTypes, strings.Trim(string(value), `"`)); i >= 0 {
		return uint64(i), nil
	}
	kind, err := numberOf(value)
	if err != nil {
		return 0, fmt.Errorf("%w or one of %s", err, strings.Join(chakraTypes[1:], ", "))
	}
	return kind, nil
}
