package supervisor

import (
	"fmt"
	"sync"
	"time"
)

const (
	// eventsKept is how many events a late reader still sees.
	eventsKept = 1024
	// detailKept bounds an event's detail, in bytes: an argument vector may
	// have megabytes.
	detailKept = 256
	// eventsAhead is how far a reader may fall behind before it is cut off,
	// so that a stopped reader costs bounded memory.
	eventsAhead = 256
)

// EventsLost is the kind of the last event that a reader gets when it was too
// slow: its detail says how many more there were.
const EventsLost = "events.lost"

// eventLog keeps the latest events and hands new ones to subscribers. It is
// safe for concurrent use.
type eventLog struct {
	mu          sync.Mutex
	recent      []Event
	subscribers map[*subscriber]struct{}
}

// subscriber is a reader of events to come.
type subscriber struct {
	events chan Event
	// lost counts the events that did not fit; the log's mutex guards it. From
	// the first on, none fits any more, so that there is only one gap.
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
		l.recent = append(l.recent[:0], l.recent[eventsKept/4:]...)
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

// subscribe returns the events so far and a reader of those to come.
func (l *eventLog) subscribe() ([]Event, *subscriber) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := &subscriber{events: make(chan Event, eventsAhead)}
	l.subscribers[s] = struct{}{}
	return append([]Event(nil), l.recent...), s
}

func (l *eventLog) unsubscribe(s *subscriber) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.subscribers, s)
}

// gap is the last event for a reader that has read all that it was given and
// lost what came then. There is none for one that keeps up.
func (l *eventLog) gap(s *subscriber) (Event, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.lost == 0 || len(s.events) > 0 {
		return Event{}, false
	}
	return Event{Time: time.Now(), Kind: EventsLost, Detail: fmt.Sprintf("reader too slow, %d events lost", s.lost)}, true
}
