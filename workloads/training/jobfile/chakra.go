package jobfile

import (
	"cmp"
	"container/heap"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"railbed/internal/input"
	"railbed/plan/schedule"
	"railbed/workloads/training"
)

// File is the execution trace of one rank, and its name for errors.
type File struct {
	Name    string
	Content []byte
}

// Numbers of fields and values in Chakra's schema (mlcommons/chakra, et_def.proto).
const (
	fieldID, fieldName, fieldType, fieldControl, fieldData, fieldDuration, fieldAttribute = 1, 2, 3, 4, 5, 7,
		10

	nodeCompute, nodeSend, nodeReceive, nodeCollective = 4, 5, 6, 7
	nodeTypes                                          = 8
)

// chakraKinds are the collectives that operations exist for. Gather and scatter are not among them.
var chakraKinds = map[uint64]schedule.Kind{
	0: schedule.AllReduce, 1: schedule.Reduce, 2: schedule.AllGather, 5: schedule.Broadcast,
	6: training.AllToAll,
	7: schedule.ReduceScatter, 8: schedule.ReduceScatter, 9: schedule.Barrier,
}

// maxNodes bounds the nodes of a file, and maxSize the bytes of an exchange before scaling.
const (
	maxNodes = 1 << 18
	maxSize  = 1 << 50
)

// readChakra reads execution traces of Chakra, one for each rank. A trace is the metadata and then
// the nodes, each message preceded by its length as a varint. A file whose name ends in .json is JSON, see
// readJSON. ReadChakra uses a node's id, type,
// dependencies and duration, and its attributes comm_type, comm_size, comm_src, comm_dst, comm_tag
// and pg_name.
//
// comm_size is an Operation's Bytes, except that for an all-gather it is the input of one rank, as
// in ASTRA-sim. Computation takes its duration_micros. Nodes of memory and metadata take no time.
// Collectives are among all ranks, or those of the group that pg_name names; group 0 is all ranks. Nodes
// become tasks in the order of their dependencies; among ready nodes the lowest id comes first.
//
// A message is sent when its sender's node is reached. Its receiver's node is done when it is
// reached and the message has arrived, as in ASTRA-sim. Messages from one rank to another with the
// same tag must be in the same order at both ranks. Errors name the byte, or the line and the column of
// JSON.
func readChakra(files []File, known groups, o Options) (*training.Program, error) {
	if len(files) == 0 || o.Ranks != 0 && o.Ranks != len(files) {
		return nil, fmt.Errorf("%d execution traces%s, want one for each of %d ranks", len(files),
			span(files), o.Ranks)
	}
	b := training.NewBuilder(len(files))
	for rank, f := range files {
		c := &chakra{File: f, rank: rank, ranks: len(files), groups: known, at: map[uint64]int{}}
		if err := c.read(); err != nil {
			return nil, err
		}
		if err := c.tasks(b); err != nil {
			return nil, err
		}
	}
	return o.done(files[0].Name+" and others", b)
}

// span returns the names of the first and the last file, for errors.
func span(files []File) string {
	switch len(files) {
	case 0:
		return ""
	case 1:
		return ", " + files[0].Name
	}
	return fmt.Sprintf(", %s to %s", files[0].Name, filepath.Base(files[len(files)-1].Name))
}

// chakra is the trace of one rank.
type chakra struct {
	File
	rank, ranks int
	groups      groups
	nodes       []chakraNode
	at          map[uint64]int // index by id
}

type chakraNode struct {
	offset   int // of the node's message
	id, kind uint64
	name     string
	micros   uint64
	after    []uint64
	numbers  map[string]uint64 // numeric attributes
	group    string
	waits    int   // number of nodes that it waits for
	before   []int // nodes that wait for this node
}

// errorAt returns an error about a byte of the file. For JSON it names the line and the column.
func (c *chakra) errorAt(offset int, format string, args ...any) error {
	what := fmt.Sprintf(format, args...)
	if !c.json() {
		return fmt.Errorf("%s: byte %d: %s", c.Name, offset, what)
	}
	line, column := input.Position(c.Content, offset)
	return fmt.Errorf("%s:%d:%d: %s", c.Name, line, column, what)
}

func (c *chakra) json() bool { return filepath.Ext(c.Name) == ".json" }

// read reads the nodes.
func (c *chakra) read() error {
	read := c.readMessages
	if c.json() {
		read = c.readJSON
	}
	if err := read(); err != nil {
		return err
	}
	if len(c.nodes) == 0 {
		return c.errorAt(len(c.Content), "the file ends without a node")
	}
	return nil
}

// readMessages splits the file into messages.
func (c *chakra) readMessages() error {
	for offset, first := 0, true; offset < len(c.Content); first = false {
		message, n := protowire.ConsumeBytes(c.Content[offset:])
		if n < 0 {
			return c.errorAt(offset, "read length and message: %v", protowire.ParseError(n))
		}
		start := offset + n - len(message)
		offset += n
		if first {
			continue // the metadata, which is not needed
		}
		node := chakraNode{offset: start, numbers: map[string]uint64{}}
		if err := c.node(&node, message); err != nil {
			return err
		}
		if err := c.add(node); err != nil {
			return err
		}
	}
	return nil
}

func (c *chakra) add(node chakraNode) error {
	if _, twice := c.at[node.id]; twice {
		return c.errorAt(node.offset, "node %d occurs twice, want each id once", node.id)
	}
	if len(c.nodes) == maxNodes {
		return c.errorAt(node.offset, "more than the limit of %d nodes", maxNodes)
	}
	c.at[node.id] = len(c.nodes)
	c.nodes = append(c.nodes, node)
	return nil
}

func checkKind(kind uint64) error {
	if kind == 0 || kind >= nodeTypes {
		return fmt.Errorf("a node of type %d, want 1 to %d", kind, nodeTypes-1)
	}
	return nil
}

func checkDuration(micros uint64) error {
	if micros > uint64(time.Hour/time.Microsecond) {
		return fmt.Errorf("a duration of %d us, want at most an hour", micros)
	}
	return nil
}

// fields calls do for each field of a message, which begins at byte offset of the file. It passes
// the number of a varint, and the bytes of other fields.
func (c *chakra) fields(offset int, message []byte,
	do func(offset int, n protowire.Number, number uint64, bytes []byte) error) error {
	for len(message) > 0 {
		n, kind, length := protowire.ConsumeTag(message)
		if length < 0 {
			return c.errorAt(offset, "read protobuf field: %v", protowire.ParseError(length))
		}
		var number uint64
		var bytes []byte
		value := 0
		switch rest := message[length:]; kind {
		case protowire.VarintType:
			number, value = protowire.ConsumeVarint(rest)
		case protowire.Fixed32Type:
			var fixed uint32
			fixed, value = protowire.ConsumeFixed32(rest)
			number = uint64(fixed)
		case protowire.Fixed64Type:
			number, value = protowire.ConsumeFixed64(rest)
		case protowire.BytesType:
			bytes, value = protowire.ConsumeBytes(rest)
		default:
			value = protowire.ConsumeFieldValue(n, kind, rest)
		}
		if value < 0 {
			return c.errorAt(offset, "read value of field %d: %v", n, protowire.ParseError(value))
		}
		if err := do(offset+length, n, number, bytes); err != nil {
			return err
		}
		offset, message = offset+length+value, message[length+value:]
	}
	return nil
}

func (c *chakra) node(node *chakraNode, message []byte) error {
	return c.fields(node.offset, message,
		func(offset int, n protowire.Number, number uint64, bytes []byte) error {
			switch n {
			case fieldID:
				node.id = number
			case fieldName:
				node.name = string(bytes)
			case fieldType:
				if err := checkKind(number); err != nil {
					return c.errorAt(offset, "%v", err)
				}
				node.kind = number
			case fieldControl, fieldData:
				if bytes == nil {
					node.after = append(node.after, number)
					return nil
				}
				for len(bytes) > 0 { // packed
					id, length := protowire.ConsumeVarint(bytes)
					if length < 0 {
						return c.errorAt(offset, "read dependencies: %v",
							protowire.ParseError(length))
					}
					node.after, bytes = append(node.after, id), bytes[length:]
				}
			case fieldDuration:
				if err := checkDuration(number); err != nil {
					return c.errorAt(offset, "%v", err)
				}
				node.micros = number
			case fieldAttribute:
				return c.attribute(node, offset, bytes)
			}
			return nil
		})
}

// attribute keeps an attribute that is a number or names a group.
func (c *chakra) attribute(node *chakraNode, offset int, message []byte) error {
	const fieldName, fieldString = 1, 29
	var name, text string
	var number uint64
	var wrong error
	err := c.fields(offset, message, func(_ int, n protowire.Number, value uint64, bytes []byte) error {
		switch n {
		case fieldName:
			name = string(bytes)
		case fieldString:
			text = string(bytes)
		case 7, 9, 11, 13, 19, 21, 23, 25, 27: // int32 to bool, except the next
			number = value
		case 15, 17: // sint32 and sint64
			number = uint64(protowire.DecodeZigZag(value))
		case 3: // double
			number, wrong = whole(math.Float64frombits(value))
		case 5: // float
			number, wrong = whole(float64(math.Float32frombits(uint32(value))))
		}
		return nil
	})
	if err == nil && wrong != nil && mustBeWhole(name) {
		return c.errorAt(offset, "%s of node %d: %v", name, node.id, wrong)
	}
	if name == "pg_name" {
		if node.group = text; text == "" {
			node.group = strconv.FormatUint(number, 10)
		}
	}
	node.numbers[name] = number
	return err
}

// mustBeWhole reports whether tasks are made of an attribute. Other attributes may have fractions.
func mustBeWhole(name string) bool {
	switch name {
	case "comm_type", "comm_size", "comm_src", "comm_dst", "comm_tag", "num_ops", "pg_name":
		return true
	}
	return false
}

// whole returns a number that tools wrote as a floating-point number. Negative numbers become what they are
// in attributes of whole numbers.
func whole(number float64) (uint64, error) {
	switch {
	case number != math.Trunc(number), number < math.MinInt64, number >= math.MaxUint64: // or NaN
		return 0, fmt.Errorf("%s, want a whole number", shown(strconv.FormatFloat(number, 'g', -1, 64)))
	case number < 0:
		return uint64(int64(number)), nil
	}
	return uint64(number), nil
}

// ready are nodes whose dependencies are done, the lowest id first.
type ready []*chakraNode

func (r ready) Len() int           { return len(r) }
func (r ready) Less(i, j int) bool { return r[i].id < r[j].id }
func (r ready) Swap(i, j int)      { r[i], r[j] = r[j], r[i] }
func (r *ready) Push(x any)        { *r = append(*r, x.(*chakraNode)) }
func (r *ready) Pop() any {
	last := (*r)[len(*r)-1]
	*r = (*r)[:len(*r)-1]
	return last
}

// tasks adds the rank's tasks in the order of their dependencies.
func (c *chakra) tasks(b *training.Builder) error {
	for i := range c.nodes {
		node := &c.nodes[i]
		slices.Sort(node.after)
		node.after = slices.Compact(node.after)
		for _, id := range node.after {
			before, known := c.at[id]
			if !known {
				return c.errorAt(node.offset, "node %d depends on node %d, which the file does not have",
					node.id, id)
			}
			c.nodes[before].before = append(c.nodes[before].before, i)
			node.waits++
		}
	}
	var queue ready
	for i := range c.nodes {
		if c.nodes[i].waits == 0 {
			heap.Push(&queue, &c.nodes[i])
		}
	}
	task := map[uint64]int{}
	for queue.Len() > 0 {
		node := heap.Pop(&queue).(*chakraNode)
		made, err := c.task(b, node)
		if err != nil {
			return err
		}
		var after []int
		for _, id := range node.after {
			after = append(after, task[id])
		}
		if node.kind == nodeReceive && len(after) > 0 && made.Kind == training.Exchange {
			// A message is sent when its sender sends it, even if its receiver does not wait for it
			// yet.
			after = append(after, b.Add(c.rank, made))
			made = training.Task{Name: made.Name, Kind: training.Delay}
		}
		made.After = after
		task[node.id] = b.Add(c.rank, made)
		for _, i := range node.before {
			if c.nodes[i].waits--; c.nodes[i].waits == 0 {
				heap.Push(&queue, &c.nodes[i])
			}
		}
	}
	if len(task) < len(c.nodes) {
		i := slices.IndexFunc(c.nodes, func(n chakraNode) bool { _, done := task[n.id]; return !done })
		return c.errorAt(c.nodes[i].offset, "node %d depends on itself, directly or through other nodes",
			c.nodes[i].id)
	}
	return nil
}

// task returns the task of a node.
func (c *chakra) task(b *training.Builder, node *chakraNode) (training.Task, error) {
	t := training.Task{Name: cmp.Or(node.name, fmt.Sprintf("node %d", node.id)), Kind: training.Delay}
	operation := training.Operation{Bytes: node.numbers["comm_size"]}
	if node.kind >= nodeSend && operation.Bytes > maxSize {
		return t, c.errorAt(node.offset, "node %d has a comm_size of %d, want at most %d", node.id,
			operation.Bytes, uint64(maxSize))
	}
	switch node.kind {
	case nodeCompute:
		if operations := node.numbers["num_ops"]; node.micros == 0 && operations > 0 {
			return t, c.errorAt(node.offset, "node %d computes %d num_ops without a duration, want "+
				"duration_micros", node.id, operations)
		}
		t.Kind, t.Time = training.Compute, time.Duration(node.micros)*time.Microsecond
		return t, nil
	case nodeSend, nodeReceive:
		other, said := node.numbers[map[uint64]string{nodeSend: "comm_dst",
			nodeReceive: "comm_src"}[node.kind]]
		if !said || other >= uint64(c.ranks) || int(other) == c.rank {
			return t, c.errorAt(node.offset,
				"node %d of rank %d sends to or receives from rank %d, want another rank from 0 to %d as "+
					"comm_dst or comm_src", node.id, c.rank, other, c.ranks-1)
		}
		operation.Group, operation.Kind, operation.Ranks = "p2p", training.Transfer, []int{c.rank, int(other)}
		if node.kind == nodeReceive {
			slices.Reverse(operation.Ranks)
		}
		operation.Channel = int(uint32(node.numbers["comm_tag"]))
	case nodeCollective:
		kind, known := chakraKinds[node.numbers["comm_type"]]
		if _, said := node.numbers["comm_type"]; !known || !said {
			return t, c.errorAt(node.offset,
				"node %d is a collective of comm_type %d, want all-reduce, reduce, all-gather, broadcast, "+
					"all-to-all, reduce-scatter or barrier", node.id, node.numbers["comm_type"])
		}
		operation.Kind = kind
		var err error
		if operation.Group, operation.Ranks, err = c.group(node); err != nil {
			return t, err
		}
		if kind == schedule.AllGather {
			if operation.Bytes *= uint64(len(operation.Ranks)); operation.Bytes > maxSize {
				// 2^50 times 2^12 at most
				return t, c.errorAt(node.offset, "node %d gathers %d bytes from %d ranks, want at most %d",
					node.id, operation.Bytes, len(operation.Ranks), uint64(maxSize))
			}
		}
	default: // memory or metadata
		return t, nil
	}
	switch {
	case operation.Kind == schedule.Barrier:
		operation.Bytes = 0
	case operation.Bytes == 0:
		return t, c.errorAt(node.offset, "node %d has no comm_size, want at least 1 byte", node.id)
	}
	if len(operation.Ranks) == 1 {
		return t, nil
	}
	t.Kind, t.Operation = training.Exchange, b.Operation(operation)
	return t, nil
}
