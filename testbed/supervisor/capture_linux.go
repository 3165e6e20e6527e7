package supervisor

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"time"

	"railbed/capture"
	"railbed/fabric/softswitch"
	"railbed/fabric/softswitch/live"
	"railbed/internal/descriptors"
	"railbed/internal/frame"
	"railbed/internal/verdict"
	"railbed/plan"
	"railbed/plan/spec"
)

// serveCapture records for one connection until the client ends the recording.
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
	out, err := c.takeOutput()
	if err != nil {
		c.fail(err)
		return
	}
	defer out.Close()
	options := capture.Options{
		Filter: request.Filter, SnapLen: request.SnapLen, Limit: request.Limit, Events: request.Events,
		Dilation: s.plan.Dilation, Epoch: s.fabric.Epoch(), Plan: s.plan.Hash(), Testbed: s.start.Name,
	}
	closeFeed, err := s.openFeed(taps, &options)
	if err != nil {
		c.fail(err)
		return
	}
	defer closeFeed()
	options.Outside = s.lostBehind(taps)
	session, err := capture.Start(ctx, taps, options, out)
	if err != nil {
		c.fail(err)
		return
	}
	subject := strings.Join(request.At, " ")
	s.events.add("capture.start", subject, fmt.Sprintf("%d taps", len(taps)))
	// If a recording ends by itself, the client is notified at once.
	go func() {
		<-session.Done()
		c.conn.SetReadDeadline(time.Now())
	}()
	if c.WriteJSON(frame.Started, struct{}{}) == nil {
		// The client's empty frame and the end of its connection both end the recording.
		_, _, _ = c.Read()
	}
	stats, err := session.Stop()
	s.events.add("capture.stop", subject,
		fmt.Sprintf("%d packets, %d dropped", stats.Written(), stats.Dropped()))
	if stats.ClockStepped != 0 {
		s.events.add("capture.clock", subject,
			fmt.Sprintf("the host's clock was set by %v during the capture", stats.ClockStepped))
	}
	if err != nil {
		c.fail(err)
		return
	}
	_ = c.WriteJSON(frame.Exit, stats) // the client may be gone
}

// maxFileName bounds a file's name in the message that passes the file, in bytes of JSON.
const maxFileName = 256

// takeOutput asks the client for the file into which the recording goes, and receives it. The recording
// process writes into the file itself, so that the packets pass neither the supervisor nor the connection.
func (c *frameConn) takeOutput() (*os.File, error) {
	socket, err := descriptors.Socket(c.conn)
	if err != nil {
		return nil, fmt.Errorf("receive the recording's file: %w", err)
	}
	// The client sends nothing between its request and the file, so nothing is in the buffer of Reader.
	if err := c.WriteJSON(frame.Started, struct{}{}); err != nil {
		return nil, err
	}
	c.setReadDeadline(time.Now().Add(requestTime))
	defer c.setReadDeadline(time.Time{})
	var name string
	files, err := descriptors.Receive(socket, &name, make([]byte, maxFileName), 1)
	if err == nil && len(files) != 1 {
		err = errors.New("no file, want 1")
	}
	if err != nil {
		return nil, fmt.Errorf("receive the recording's file: %w", err)
	}
	return files[0], nil
}

// openFeed makes soft switches record at the taps, or faults of kernel links and switches record the packets
// that they hit. It adds the source of these records to the taps and options.
func (s *supervisor) openFeed(taps []capture.Tap, options *capture.Options) (closeFeed func(), err error) {
	var ports []plan.End
	for i := range taps {
		ports = append(ports, plan.End{Node: taps[i].Node, Port: taps[i].Port})
	}
	snap := options.SnapLen
	if snap == 0 {
		snap = math.MaxInt32
	}
	feed, err := s.fabric.Record(ports, live.RecordOptions{Snap: snap, Events: options.Events})
	switch {
	case !s.plan.Soft() && errors.Is(err, verdict.ErrUnsupported): // and so are the faults
		return func() {}, nil
	case err != nil:
		return nil, err
	}
	for i := range taps {
		taps[i].Fed, taps[i].Number = true, uint16(i)
	}
	options.Feed, options.Serials, options.Reasons = feed.File, feed.Serials, softswitch.ReasonNames()
	return func() {
		if err := feed.Close(); err != nil {
			s.log.Warn("end the records of switches and faults", "error", err)
		}
	}, nil
}

// taps returns the taps that selectors of ports select, each once.
func (s *supervisor) taps(at []string) ([]capture.Tap, error) {
	var all []capture.Tap
	for _, n := range s.plan.Nodes {
		all = s.appendTaps(all, n.Name, n.NICs, capture.Tap{NIC: true, Bypass: n.Bypass})
	}
	for _, sw := range s.plan.Switches {
		all = s.appendTaps(all, sw.Name, sw.Ports, capture.Tap{})
	}
	chosen := make([]bool, len(all))
	for _, pattern := range at {
		matched := false
		for i, tap := range all {
			if (spec.Port{Node: tap.Node, Name: tap.Port, NIC: tap.NIC}).Selected(pattern) {
				chosen[i], matched = true, true
			}
		}
		if !matched {
			return nil, fmt.Errorf("capture at %q: %w; want %s, or a glob of these", pattern, ErrNoSuchObject,
				spec.PortForm)
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

// appendTaps appends a copy of a tap for each port of a node or switch.
func (s *supervisor) appendTaps(taps []capture.Tap, node string, ports []plan.Interface,
	tap capture.Tap) []capture.Tap {
	tap.Node, tap.NS, tap.Soft = node, s.namespaces[node], s.namespaces[node] == nil
	for _, port := range ports {
		tap.Port, tap.Link, tap.Ranks = port.Name, port.Link, s.ranksOf(node, port.Name)
		taps = append(taps, tap)
	}
	return taps
}

// ranksOf returns the ranks that use a port.
func (s *supervisor) ranksOf(node, port string) (ranks []int) {
	for i := range s.plan.Ranks {
		if r := &s.plan.Ranks[i]; r.Node == node && r.NIC == port {
			ranks = append(ranks, r.Rank)
		}
	}
	return ranks
}
