package supervisor

import (
	"context"
	"fmt"
	"path"
	"strings"

	"railbed/capture"
	"railbed/testbed/frame"
	"railbed/testbed/plan"
)

// serveCapture records for one connection until the client has heard enough.
func (s *supervisor) serveCapture(c *frameConn) {
	var request CaptureRequest
	if err := c.request(&request); err != nil {
		c.fail(err)
		return
	}
	taps, err := s.taps(request.At)
	if err != nil {
		c.fail(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	session, err := capture.Start(ctx, taps, capture.Options{
		Filter: request.Filter, SnapLen: request.SnapLen, Limit: request.Limit,
	}, frameWriter{c})
	if err != nil {
		c.fail(err)
		return
	}
	subject := strings.Join(request.At, " ")
	s.events.add("capture.start", subject, fmt.Sprintf("%d taps", len(taps)))
	if c.WriteJSON(frame.Started, struct{}{}) == nil {
		// The client's empty frame and its end both mean: enough.
		_, _, _ = c.Read()
	}
	stats, err := session.Stop()
	s.events.add("capture.stop", subject, fmt.Sprintf("%d packets, %d dropped", stats.Written(), stats.Dropped()))
	if err != nil {
		c.fail(err)
		return
	}
	_ = c.WriteJSON(frame.Exit, stats) // the client may be gone
}

// frameWriter sends what is written as Stdout frames.
type frameWriter struct{ c *frameConn }

func (w frameWriter) Write(p []byte) (int, error) {
	for sent := 0; sent < len(p); {
		n := min(len(p)-sent, frame.MaxPayload)
		if err := w.c.Write(frame.Stdout, p[sent:sent+n]); err != nil {
			return sent, err
		}
		sent += n
	}
	return len(p), nil
}

// taps resolves tap names: all, nics, switches, a node's or switch's name, a
// NODE:PORT, or globs of these. Each tap is taken once.
func (s *supervisor) taps(at []string) ([]capture.Tap, error) {
	var all []capture.Tap
	for _, n := range s.start.Plan.Nodes {
		all = s.appendTaps(all, n.Name, n.NICs, true)
	}
	for _, sw := range s.start.Plan.Switches {
		all = s.appendTaps(all, sw.Name, sw.Ports, false)
	}
	chosen := make([]bool, len(all))
	for _, pattern := range at {
		matched := false
		for i, tap := range all {
			if tapMatches(pattern, tap) {
				chosen[i], matched = true, true
			}
		}
		if !matched {
			return nil, fmt.Errorf("capture at %q: %w; want all, nics, switches, a node or switch, NODE:PORT, or a glob of these", pattern, errNoSuchObject)
		}
	}
	var taps []capture.Tap
	for i, tap := range all {
		if chosen[i] {
			taps = append(taps, tap)
		}
	}
	return taps, nil
}

func (s *supervisor) appendTaps(taps []capture.Tap, node string, ports []plan.Interface, nic bool) []capture.Tap {
	for _, port := range ports {
		taps = append(taps, capture.Tap{Node: node, Port: port.Name, Link: port.Link, NIC: nic, NS: s.namespaces[node]})
	}
	return taps
}

func tapMatches(pattern string, tap capture.Tap) bool {
	switch pattern {
	case "all":
		return true
	case "nics":
		return tap.NIC
	case "switches":
		return !tap.NIC
	}
	name := tap.Node
	if strings.Contains(pattern, ":") {
		name += ":" + tap.Port
	}
	matched, err := path.Match(pattern, name)
	return err == nil && matched
}
