package supervisor

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// eventsKept is the number of events that are kept for later readers.
	eventsKept = 1024
	// detailKept bounds an event's detail, in bytes, because an argument vector may have megabytes.
	detailKept = 256
	// eventsAhead is how many events a reader may be behind before it is cut off. It bounds the
	// memory for a stopped reader.
	eventsAhead = 256
)

const (
	// EventsLost is the kind of the last event for a reader that was too slow. The event has the
	// number of events that the reader missed.
	EventsLost = "events.lost"
	// EventsDropped is the kind of the first event if not all earlier events are kept.
	EventsDropped = "events.dropped"
)

// eventLog keeps the latest events and passes new events to subscribers. It is safe for concurrent
// use.
type eventLog struct {
	mu          sync.Mutex
	recent      []Event
	dropped     int // events that are no longer in recent
	subscribers map[*subscriber]struct{}
}

// subscriber is a reader of new events.
type subscriber struct {
	events chan Event
	// lost counts the events that did not fit. The log's mutex guards it. After the first lost
	// event all further events are lost, so there is only one gap.
	lost int
}

func newEventLog() *eventLog {
	return &eventLog{subscribers: make(map[*subscriber]struct{})}
}

func (l *eventLog) add(kind, subject, detail string) {
	if len(detail) > detailKept {
		detail = detail[:detailKept] + "..."
	}
	event := Event{Time: time.Now(), Kind: kind, Subject: subject, Detail: detail}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.recent) == eventsKept {
		l.dropLocked(eventsKept / 4)
	}
	l.recent = append(l.recent, event)
	for s := range l.subscribers {
		if s.lost > 0 {
			s.lost++
			continue
		}
		select {
		case s.events <- event:
		default:
			s.lost++
		}
	}
}

// dropLocked removes the oldest count events. If there are enough events of processes it removes
// only those, so that starts of a thousand commands do not displace the end of a container.
func (l *eventLog) dropLocked(count int) {
	ofProcess := func(e Event) bool { return strings.HasPrefix(e.Kind, "process.") }
	processes := 0
	for _, e := range l.recent {
		if ofProcess(e) {
			processes++
		}
	}
	left := count
	l.recent = slices.DeleteFunc(l.recent, func(e Event) bool {
		goes := left > 0 && (processes < count || ofProcess(e))
		if goes {
			left--
		}
		return goes
	})
	l.dropped += count
}

// subscribe returns the events so far and a reader of new events.
func (l *eventLog) subscribe() ([]Event, *subscriber) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := &subscriber{events: make(chan Event, eventsAhead)}
	l.subscribers[s] = struct{}{}
	var past []Event
	if l.dropped > 0 {
		past = append(past, Event{Time: l.recent[0].Time, Kind: EventsDropped, Count: l.dropped,
			Detail: fmt.Sprintf("%d earlier events were not kept", l.dropped)})
	}
	return append(past, l.recent...), s
}

// followers returns how many clients read new events.
func (l *eventLog) followers() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.subscribers)
}

func (l *eventLog) unsubscribe(s *subscriber) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.subscribers, s)
}

// gap returns the last event for a reader that has read its events and missed later ones. There is
// none for a reader that keeps up.
func (l *eventLog) gap(s *subscriber) (Event, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.lost == 0 || len(s.events) > 0 {
		return Event{}, false
	}
	return Event{Time: time.Now(), Kind: EventsLost, Count: s.lost,
		Detail: fmt.Sprintf("reader too slow, %d events lost", s.lost)}, true
}
