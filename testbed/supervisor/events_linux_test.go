package supervisor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"railbed/testkit/hosttest"
)

// followed is a reader of the events of a server that it has not read from yet.
func followed(t *testing.T, s *supervisor) *json.Decoder {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(s.serveEvents))
	t.Cleanup(server.Close)
	response, err := http.Get(server.URL + "?follow=true")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { response.Body.Close() })
	return json.NewDecoder(response.Body)
}

// TestSlowReaderIsTold how many events it lost, last of all.
func TestSlowReaderIsTold(t *testing.T) {
	s := &supervisor{events: newEventLog()}
	s.events.add("testbed.up", "x", "")
	decoder := followed(t, s)
	// More than the sockets between hold, in details of full length.
	const added = 60000
	for i := range added {
		s.events.add("link.set", fmt.Sprint(i), strings.Repeat("x", detailKept))
	}
	read, last := 0, Event{}
	for {
		var event Event
		err := decoder.Decode(&event)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if event.Kind == "link.set" {
			if want := fmt.Sprint(read); event.Subject != want {
				t.Fatalf("event %s after %d events: there is a gap before the end", event.Subject, read)
			}
			read++
		}
		last = event
	}
	var lost int
	if _, err := fmt.Sscanf(last.Detail, "reader too slow, %d events lost", &lost); err != nil ||
		last.Kind != EventsLost {
		t.Fatalf("the last event is %+v, want %s", last, EventsLost)
	}
	if read+lost > added || lost == 0 {
		t.Errorf("%d read and %d lost of %d", read, lost, added)
	}
}

// TestGapCountsWhatIsLost: the last event of a slow reader has the number of events that it missed.
func TestGapCountsWhatIsLost(t *testing.T) {
	log := newEventLog()
	_, reader := log.subscribe()
	const lost = 100
	for range eventsAhead + lost {
		log.add("link.set", "", "")
	}
	for range eventsAhead {
		if gap, found := log.gap(reader); found {
			t.Fatalf("%+v before all was read", gap)
		}
		<-reader.events
		log.add("link.set", "", "") // is lost as well: one gap, and nothing after it
	}
	gap, found := log.gap(reader)
	if want := fmt.Sprintf("reader too slow, %d events lost", lost+eventsAhead); !found ||
		gap.Detail != want || gap.Kind != EventsLost {
		t.Errorf("gap %+v, want %q", gap, want)
	}
}

// TestLateReaderIsTold how many events are not kept, first of all, and has the latest ones, and
// those of anything but processes from the begin on.
func TestLateReaderIsTold(t *testing.T) {
	log := newEventLog()
	log.add("container.ended", "h0", "")
	const processes = 3000
	for i := range processes {
		log.add("process.start", fmt.Sprint(i), "")
	}
	past, _ := log.subscribe()
	kept := len(past) - 1
	if first := past[0]; first.Kind != EventsDropped || first.Count != processes+1-kept ||
		!strings.Contains(first.Detail, fmt.Sprint(first.Count)) || kept > eventsKept || kept < eventsKept/2 {
		t.Errorf("of %d events %d are kept, and the first says %+v", processes+1, kept, first)
	}
	if past[1].Kind != "container.ended" {
		t.Errorf("the end of a container is not kept: %+v", past[1])
	}
	for i, e := range past[2:] {
		if want := fmt.Sprint(processes - kept + 1 + i); e.Subject != want {
			t.Fatalf("event %d is that of process %s, want %s", i, e.Subject, want)
		}
	}
	for range 3 * eventsKept {
		log.add("link.set", "", "")
	}
	if past, _ = log.subscribe(); len(past) > eventsKept+1 ||
		past[0].Count != processes+1+3*eventsKept-len(past)+1 {
		t.Errorf("%d events, and the first says %+v", len(past), past[0])
	}
}

// TestQuickReaderLosesNothing and goes on until the testbed's end.
func TestQuickReaderLosesNothing(t *testing.T) {
	s := &supervisor{events: newEventLog()}
	decoder := followed(t, s)
	kinds := make(chan []string)
	var read atomic.Int32
	go func() {
		var all []string
		for {
			var event Event
			if decoder.Decode(&event) != nil {
				kinds <- all
				return
			}
			all = append(all, event.Kind)
			read.Add(1)
		}
	}()
	hosttest.Until(t, "a reader", func() bool { return len(s.events.all()) > 0 })
	for i := range 3 * eventsAhead {
		if i%(eventsAhead/2) == 0 { // a reader that has read all before is quick
			hosttest.Until(t, "events that were read", func() bool { return int(read.Load()) == i })
		}
		s.events.add("link.set", "", "")
	}
	s.events.add("testbed.down", "", "")
	all := <-kinds
	if len(all) != 3*eventsAhead+1 || all[len(all)-1] != "testbed.down" {
		t.Errorf("%d events, the last is %q; want %d", len(all), all[len(all)-1], 3*eventsAhead+1)
	}
}

// all are the readers that there are.
func (l *eventLog) all() []*subscriber {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []*subscriber
	for s := range l.subscribers {
		all = append(all, s)
	}
	return all
}
