package ui

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"railbed/capture/display"
	"railbed/capture/pcapng"
	"railbed/testbed"
	"railbed/testbed/supervisor"
)

const (
	// snapLen is how much of each packet is recorded, in bytes: all headers, and no more than the lines need.
	snapLen = 512
	// listTime is the time between two lists of packets, and listMost the number of packets in a list. The
	// page shows how many others matched.
	listTime = 250 * time.Millisecond
	listMost = 100
)

// captureRequest starts a recording at taps, as of railbed capture. Filter selects the packets to list.
type captureRequest struct {
	At     []string `json:"at"`
	Filter string   `json:"filter"`
}

// packets is a message of a recording.
type packets struct {
	// ID is the recording, for capture/stop. It is in the first message.
	ID      int               `json:"id,omitempty"`
	Packets []display.Summary `json:"packets,omitempty"`
	// Recorded and Matched count all packets so far, and Omitted those that matched and are not listed.
	Recorded uint64 `json:"recorded"`
	Matched  uint64 `json:"matched"`
	Omitted  uint64 `json:"omitted"`
	// Ended is true in the last message. Lost is the number of packets that the recording lost, and Error
	// the reason why it ended by itself.
	Ended bool   `json:"ended,omitempty"`
	Lost  uint64 `json:"lost,omitempty"`
	Error string `json:"error,omitempty"`
}

// recordings are the recordings of all pages, by their numbers.
type recordings struct {
	mu   sync.Mutex
	last int
	open map[int]*testbed.Recording // nil until it has started
}

// reserve returns the number of a new recording, unless there are too many.
func (r *recordings) reserve() (id int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.open) == maxCaptures {
		return 0, false
	}
	r.last++
	r.open[r.last] = nil
	return r.last, true
}

func (r *recordings) set(id int, recording *testbed.Recording) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open[id] = recording
}

func (r *recordings) remove(id int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.open, id)
}

// end ends a recording if it is still there.
func (r *recordings) end(id int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if recording := r.open[id]; recording != nil {
		recording.End()
	}
}

// serveCapture records until the client closes the connection or asks for the end, and lists the packets in
// lines of JSON.
func (s *Server) serveCapture(w http.ResponseWriter, r *http.Request) {
	var request captureRequest
	if !readJSON(w, r, &request) {
		return
	}
	filter, err := display.Compile(request.Filter)
	if err != nil {
		answer(w, http.StatusUnprocessableEntity,
			map[string][]problem{"problems": {{"filter", "filter: " + err.Error()}}})
		return
	}
	id, ok := s.recordings.reserve()
	if !ok {
		fail(w, http.StatusServiceUnavailable, fmt.Errorf("%d recordings run already", maxCaptures))
		return
	}
	defer s.recordings.remove(id)
	// The end of the client's connection ends the context of its request.
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(s.ending, cancel)()
	recording, err := s.testbed.Record(ctx, supervisor.CaptureRequest{At: request.At, SnapLen: snapLen})
	if err != nil {
		failChange(w, err)
		return
	}
	s.recordings.set(id, recording)
	list := &list{id: id}
	done := make(chan struct{})
	go func() {
		defer close(done)
		list.err = list.read(recording, filter)
	}()
	defer func() {
		recording.End()
		select {
		case <-done: // the supervisor has sent the rest, and counts no packet as lost
		case <-time.After(farewell):
		}
		recording.Close() // which ends the reads
		<-done
	}()
	w.Header().Set("Content-Type", "application/x-ndjson")
	list.send(ctx, sender{w: w, after: "\n"}, recording, done)
}

// serveStop ends a recording. The stream of the recording then has its last message.
func (s *Server) serveStop(w http.ResponseWriter, r *http.Request) {
	var request struct {
		ID int `json:"id"`
	}
	if readJSON(w, r, &request) {
		s.recordings.end(request.ID)
		answer(w, http.StatusOK, struct{}{})
	}
}

// list collects packets for the next message.
type list struct {
	id  int
	err error // of read, once it has returned

	mu   sync.Mutex
	next packets
}

// read decodes the packets of a recording to its end.
func (l *list) read(recording io.Reader, filter *display.Filter) error {
	source, err := pcapng.NewReader(recording)
	if err != nil {
		return err
	}
	decoder := display.NewDecoder(source)
	if filter.Analyses() {
		decoder.Analyse()
	}
	for {
		p, err := decoder.Next()
		if err != nil {
			return err
		}
		l.add(p, filter.Match(p))
	}
}

func (l *list) add(p *display.Packet, matches bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next.Recorded++
	if !matches {
		return
	}
	l.next.Matched++
	if len(l.next.Packets) == listMost {
		l.next.Omitted++
		return
	}
	l.next.Packets = append(l.next.Packets, p.Summary())
}

// take returns the next message and begins another one.
func (l *list) take() packets {
	l.mu.Lock()
	defer l.mu.Unlock()
	taken := l.next
	l.next.Packets = nil
	return taken
}

// send sends messages until the recording or the context ends. done is closed at the end of read.
func (l *list) send(ctx context.Context, to sender, recording *testbed.Recording, done <-chan struct{}) {
	if to.send(packets{ID: l.id}) != nil {
		return
	}
	tick := time.NewTicker(listTime)
	defer tick.Stop()
	var sent uint64
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if message := l.take(); message.Recorded > sent {
				sent = message.Recorded
				if to.send(message) != nil {
					return
				}
			}
		case <-done:
			message := l.take()
			stats, err := recording.Stats()
			message.Ended, message.Lost = true, stats.Dropped()
			if err = errors.Join(err, l.err); err != nil && !errors.Is(l.err, io.EOF) {
				message.Error = err.Error()
			}
			_ = to.send(message) // the client may be gone
			return
		}
	}
}
