package jobfile

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"railbed/workloads/training"
)

// readMatrix reads a traffic matrix of htsim (Broadcom/csg-htsim, connection_matrix.cpp):
//
//	Nodes 4
//	Connections 2
//	Triggers 1
//	0->1 id 1 start 0 size 2000000 recv_done_trigger 1
//	1->2 id 2 trigger 1 size 1000
//	trigger id 1 oneshot
//
// Each connection is one transfer, and start is in picoseconds. A connection with a trigger begins
// when the one connection that fires the trigger is done. For a barrier it begins when all firing
// connections are done, as many as the barrier's count. The sender must know that, so the firing
// connections must begin or end at its node. If a firing connection ends there, send_done_trigger
// too fires when the message has arrived. prio has no effect; addon and failures are refused.
//
// Ranks are the nodes that connections use, in ascending order. But if Nodes is the number of ranks of the
// job, each node is the rank of its number. Connections with msg are messages of the connection with the
// same id (spcl/HTSIM). Each message is a transfer of its own. The number after msg is optional and has no
// effect.
func readMatrix(name string, text []byte, o Options) (*training.Program, error) {
	m := &matrix{name: name, triggers: map[int]*matrixTrigger{}, flows: map[int]*matrixConnection{},
		ranks: map[int]int{}}
	counts := map[string]int{"Nodes": -1, "Connections": -1, "Triggers": 0, "Failures": 0}
	all := lines(text)
	for i, words := range all {
		line := i + 1
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		var err error
		if _, header := counts[words[0]]; header {
			if len(words) != 2 {
				return nil, lineError(name, line, "%s has %d values, want one", words[0], len(words)-1)
			}
			counts[words[0]], err = m.number(line, words[0], words[1], 1<<20)
		} else if strings.Contains(words[0], "->") {
			if counts["Nodes"] < 1 {
				return nil, lineError(name, line, "connection %s: want a line Nodes before it, with at "+
					"least 1", shown(words[0]))
			}
			err = m.connection(line, words, counts["Nodes"])
		} else if words[0] == "trigger" {
			err = m.trigger(line, words)
		} else {
			err = lineError(name, line, "%s is not known; want Nodes, Connections, Triggers, a->b or trigger",
				shown(words[0]))
		}
		if err != nil {
			return nil, err
		}
	}
	if err := m.checkCounts(counts, len(all)); err != nil {
		return nil, err
	}
	ranks, err := m.ranksOf(counts["Nodes"], o.Ranks)
	if err != nil {
		return nil, err
	}
	b, err := m.program(ranks)
	if err != nil {
		return nil, err
	}
	return o.done(name, b)
}

// ranksOf numbers the ranks of the nodes, and returns how many ranks there are. asked is the number that
// the job has to have, or 0 for any.
func (m *matrix) ranksOf(nodes, asked int) (ranks int, err error) {
	used := map[int]bool{}
	for _, c := range m.connections {
		used[c.from], used[c.to] = true, true
	}
	if asked == nodes {
		for node := range used {
			m.ranks[node] = node
		}
		return nodes, nil
	}
	for rank, node := range slices.Sorted(maps.Keys(used)) {
		m.ranks[node] = rank
	}
	switch ranks = len(used); {
	case ranks > training.MaxRanks || ranks == 0:
		return 0, lineError(m.name, 1, "connections use %d nodes, want 1 to %d", ranks, training.MaxRanks)
	case asked != 0 && asked != ranks:
		all := ""
		if nodes <= training.MaxRanks {
			all = fmt.Sprintf(", or world: %d for all Nodes", nodes)
		}
		return 0, lineError(m.name, 1, "the job has %d ranks, want world: %d for the nodes that connections "+
			"use%s", asked, ranks, all)
	}
	return ranks, nil
}

// checkCounts compares the counts that the file states with its lines.
func (m *matrix) checkCounts(counts map[string]int, last int) error {
	switch {
	case counts["Nodes"] < 1:
		return lineError(m.name, last, "the file has no line Nodes, want the number of nodes")
	case counts["Connections"] < 0:
		return lineError(m.name, last, "the file has %d connections and no line Connections, want "+
			"Connections %d", len(m.connections), len(m.connections))
	case counts["Connections"] != len(m.connections):
		return lineError(m.name, last, "the file has %d connections, but Connections is %d",
			len(m.connections), counts["Connections"])
	case counts["Triggers"] != m.defined:
		return lineError(m.name, last, "the file has %d triggers, but Triggers is %d", m.defined,
			counts["Triggers"])
	case counts["Failures"] != 0:
		return lineError(m.name, last, "the file has failures, want none: use steps that change links")
	}
	return nil
}

type matrix struct {
	name        string
	connections []matrixConnection
	triggers    map[int]*matrixTrigger
	flows       map[int]*matrixConnection // the first of each id
	ranks       map[int]int               // by node
	defined     int
}

type matrixConnection struct {
	line, id          int
	from, to          int  // nodes
	message           bool // it has msg
	size              uint64
	start             time.Duration
	started           bool
	trigger           int // 0 for none
	sendDone, recDone int
	tasks             [2]int // task at from, task at to
	done              bool
}

type matrixTrigger struct {
	line    int
	barrier bool
	count   int
	firing  []int // connections
}

func (m *matrix) number(line int, what, word string, most int) (int, error) {
	n, err := strconv.Atoi(word)
	if err != nil || n < 0 || n > most {
		return 0, lineError(m.name, line, "%s is %s, want a whole number up to %d", what, shown(word), most)
	}
	return n, nil
}

const matrixKeys = "start, size, id, msg, trigger, send_done_trigger, recv_done_trigger or prio"

// connection parses a line a->b.
func (m *matrix) connection(line int, words []string, nodes int) error {
	c := matrixConnection{line: line}
	from, to, _ := strings.Cut(words[0], "->")
	for _, end := range []struct {
		word string
		node *int
	}{{from, &c.from}, {to, &c.to}} {
		n, err := m.number(line, "a node", end.word, nodes-1)
		if err != nil {
			return err
		}
		*end.node = n
	}
	if c.from == c.to {
		return lineError(m.name, line, "node %d sends to itself", c.from)
	}
	keys := map[string]*int{"id": &c.id, "msg": new(int), "size": new(int),
		"trigger": &c.trigger, "prio": new(int),
		"send_done_trigger": &c.sendDone, "recv_done_trigger": &c.recDone}
	for i := 1; i < len(words); i += 2 {
		key := words[i]
		if key == "msg" {
			c.message = true
			if i+1 == len(words) || strings.Trim(words[i+1], "0123456789") != "" {
				i-- // it has no number
				continue
			}
		}
		if i+1 == len(words) {
			return lineError(m.name, line, "%s has no value, or is not known; want %s", shown(key),
				matrixKeys)
		}
		if key == "start" {
			ps, err := strconv.ParseFloat(words[i+1], 64)
			if err != nil || ps < 0 || !(ps <= 3600e12) {
				return lineError(m.name, line, "start is %s, want picoseconds, at most an hour",
					shown(words[i+1]))
			}
			c.start, c.started = time.Duration(ps/1000), true
			continue
		}
		value, known := keys[key]
		if !known {
			return lineError(m.name, line, "%s is not known; want %s", shown(key), matrixKeys)
		}
		n, err := m.number(line, key, words[i+1], maxSize)
		if err != nil {
			return err
		}
		if *value = n; n == 0 && key != "prio" && key != "size" {
			return lineError(m.name, line, "%s is 0, want at least 1", key)
		}
	}
	c.size = uint64(*keys["size"])
	return m.addConnection(&c)
}

// addConnection checks and keeps a connection.
func (m *matrix) addConnection(c *matrixConnection) error {
	first := m.flows[c.id]
	switch {
	case c.size == 0:
		return lineError(m.name, c.line, "the connection has no size, or size 0 (endless): want 1 byte or "+
			"more")
	case c.started == (c.trigger != 0):
		return lineError(m.name, c.line, "the connection has both start and trigger, or neither: want one "+
			"of them")
	case c.trigger != 0 && c.id == 0:
		return lineError(m.name, c.line, "a connection with a trigger has no id, want one")
	case c.message && c.id == 0:
		return lineError(m.name, c.line, "msg without an id, want the id of the message's connection")
	case first != nil && !c.message:
		return lineError(m.name, c.line, "id %d occurs twice, want each id once, or msg for another message "+
			"of the connection", c.id)
	case first != nil && (first.from != c.from || first.to != c.to):
		return lineError(m.name, c.line, "a message of connection %d, which leads from %d to %d, want the "+
			"same nodes", c.id, first.from, first.to)
	}
	if c.id != 0 && first == nil {
		m.flows[c.id] = c
	}
	m.connections = append(m.connections, *c)
	return nil
}

// trigger parses a line that defines a trigger.
func (m *matrix) trigger(line int, words []string) error {
	t := &matrixTrigger{line: line, count: 1}
	id, kind := 0, ""
	for i := 1; i < len(words); i++ {
		switch words[i] {
		case "id", "count":
			if i+1 == len(words) {
				return lineError(m.name, line, "%s has no value, want one", words[i])
			}
			n, err := m.number(line, words[i], words[i+1], 1<<20)
			if err != nil {
				return err
			}
			if words[i] == "id" {
				id = n
			} else {
				t.count = n
			}
			i++
		case "oneshot", "multishot", "barrier":
			kind = words[i]
			t.barrier = kind == "barrier"
		default:
			return lineError(m.name, line, "%s is not known; want id, count, oneshot, multishot or barrier",
				shown(words[i]))
		}
	}
	if id == 0 || kind == "" || m.triggers[id] != nil {
		return lineError(m.name, line,
			"want a trigger with an id above 0 that no other trigger has, and with oneshot, multishot or "+
				"barrier")
	}
	m.defined++
	m.triggers[id] = t
	return nil
}

// program makes the transfers, each after those that fire its trigger.
func (m *matrix) program(ranks int) (*training.Builder, error) {
	for i := range m.connections {
		c := &m.connections[i]
		for _, fired := range []int{c.sendDone, c.recDone} {
			if fired == 0 {
				continue
			}
			if m.triggers[fired] == nil {
				return nil, lineError(m.name, c.line, "trigger %d is not defined", fired)
			}
			m.triggers[fired].firing = append(m.triggers[fired].firing, i)
		}
		if c.trigger != 0 && m.triggers[c.trigger] == nil {
			return nil, lineError(m.name, c.line, "trigger %d is not defined", c.trigger)
		}
	}
	if len(m.connections) > training.MaxOperations {
		return nil, lineError(m.name, 1, "%d connections, want at most %d", len(m.connections),
			training.MaxOperations)
	}
	b := training.NewBuilder(ranks)
	for left := len(m.connections); left > 0; {
		before := left
		for i := range m.connections {
			if added, err := m.add(b, i); err != nil {
				return nil, err
			} else if added {
				left--
			}
		}
		if left == before {
			i := slices.IndexFunc(m.connections, func(c matrixConnection) bool { return !c.done })
			return nil, lineError(m.name, m.connections[i].line,
				"the connection waits for trigger %d, which no earlier connection fires",
				m.connections[i].trigger)
		}
	}
	return b, nil
}

// add adds a connection, if the connections that fire its trigger have been added.
func (m *matrix) add(b *training.Builder, i int) (bool, error) {
	c := &m.connections[i]
	if c.done {
		return false, nil
	}
	from, to := m.ranks[c.from], m.ranks[c.to]
	name := fmt.Sprintf("%d->%d", c.from, c.to)
	var after []int
	if c.trigger != 0 {
		t := m.triggers[c.trigger]
		if want := t.count; len(t.firing) > 0 &&
			(t.barrier && len(t.firing) != want || !t.barrier && len(t.firing) != 1) {
			return false, lineError(m.name, t.line,
				"%d connections fire the trigger, want 1, or for a barrier its count", len(t.firing))
		}
		for _, firing := range t.firing {
			switch f := &m.connections[firing]; {
			case c.from != f.from && c.from != f.to:
				return false, lineError(m.name, c.line,
					"node %d waits for trigger %d, which the connection of line %d fires: want a connection "+
						"that begins or ends at this node", c.from, c.trigger, f.line)
			case !f.done:
				return false, nil
			case c.from == f.to:
				after = append(after, f.tasks[1])
			default:
				after = append(after, f.tasks[0])
			}
		}
		if len(t.firing) == 0 {
			return false, nil
		}
	} else if c.start > 0 {
		after = []int{b.Add(from, training.Task{Name: name, Kind: training.Delay, Time: c.start})}
	}
	operation := b.Operation(training.Operation{Group: "flow", Channel: i, Kind: training.Transfer,
		Ranks: []int{from, to}, Bytes: c.size})
	c.tasks[0] = b.Add(from, training.Task{Name: name, Kind: training.Exchange, Operation: operation,
		After: after})
	c.tasks[1] = b.Add(to, training.Task{Name: name, Kind: training.Exchange, Operation: operation})
	c.done = true
	return true, nil
}
