package trace

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
)

// chrome writes the JSON Object Format of Chrome's trace viewer. Its times are in microseconds.
type chrome struct {
	to    *bufio.Writer
	began bool
	// processes are the processes of tracks, and names those of counters, by number.
	processes map[int]int
	names     map[int]string
	err       error
}

type chromeEvent struct {
	Name  string         `json:"name"`
	Phase string         `json:"ph"`
	PID   int            `json:"pid"`
	TID   int            `json:"tid"`
	Time  float64        `json:"ts"`
	Took  *float64       `json:"dur,omitempty"`
	ID    uint64         `json:"id,omitempty"`
	Cat   string         `json:"cat,omitempty"`
	Bind  string         `json:"bp,omitempty"`
	Scope string         `json:"s,omitempty"`
	Args  map[string]any `json:"args,omitempty"`
}

func (c *chrome) write(e chromeEvent) {
	if c.err != nil {
		return
	}
	before := ",\n"
	if !c.began {
		before = `{"displayTimeUnit": "ns", "traceEvents": [` + "\n"
		c.began, c.processes, c.names = true, map[int]int{}, map[int]string{}
	}
	text, err := json.Marshal(e)
	if err == nil {
		_, err = c.to.WriteString(before)
	}
	if err == nil {
		_, err = c.to.Write(text)
	}
	c.err = err
}

func micros(ns int64) float64 { return float64(ns) / 1e3 }

func (c *chrome) process(id int, name string) {
	c.write(chromeEvent{Name: "process_name", Phase: "M", PID: id, Args: map[string]any{"name": name}})
	c.write(chromeEvent{Name: "process_sort_index", Phase: "M", PID: id,
		Args: map[string]any{"sort_index": id}})
}

func (c *chrome) track(id, process, _ int, name string, _ bool) {
	c.write(chromeEvent{Name: "thread_name", Phase: "M", PID: process, TID: id,
		Args: map[string]any{"name": name}})
	c.processes[id] = process
}

func (c *chrome) counter(id, process int, name, unit string) {
	c.processes[id], c.names[id] = process, fmt.Sprintf("%s (%s)", name, unit)
}

func chromeArgs(args []arg) map[string]any {
	all := map[string]any{}
	for _, a := range args {
		all[a.name] = a.value
	}
	return all
}

func (c *chrome) slice(track int, from, to int64, name string, args []arg, way arrow) {
	took := micros(to - from)
	e := chromeEvent{Name: name, Phase: "X", PID: c.processes[track], TID: track, Time: micros(from),
		Took: &took,
		Args: chromeArgs(args)}
	c.write(e)
	if way.packet == 0 || way.first && way.last {
		return
	}
	e.Name, e.Cat, e.Took, e.Args, e.ID, e.Phase = "packet", "packet", nil, nil, way.packet, "t"
	switch {
	case way.first:
		e.Phase = "s"
	case way.last:
		e.Phase, e.Bind = "f", "e"
	}
	c.write(e)
}

func (c *chrome) instant(track int, at int64, name string, args []arg) {
	c.write(chromeEvent{Name: name, Phase: "i", PID: c.processes[track], TID: track, Time: micros(at),
		Scope: "t",
		Args:  chromeArgs(args)})
}

func (c *chrome) value(counter int, at int64, value int64) {
	c.write(chromeEvent{Name: c.names[counter], Phase: "C", PID: c.processes[counter], Time: micros(at),
		Args: map[string]any{"value": value}})
}

func (c *chrome) close() error {
	if c.err == nil && !c.began {
		_, c.err = c.to.WriteString(`{"traceEvents": [`)
	}
	_, err := c.to.WriteString("\n]}\n")
	return errors.Join(c.err, err, c.to.Flush())
}
