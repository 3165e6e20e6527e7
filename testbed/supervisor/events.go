package supervisor

import (
	"fmt"
	"slices"
	"strings"
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

const (
	// EventsLost is the kind of the last event that a reader gets when it was too
	// slow: it says how many more there were.
	EventsLost = "events.lost"
	// EventsDropped is that of the first one where not all from before are kept.
	EventsDropped = "events.dropped"
)

// eventLog keeps the latest events and hands new ones to subscribers. It is
// safe for concurrent use.
type eventLog struct {
	mu          sync.Mutex
	recent      []Event
	dropped     int // that are no longer among recent
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

// dropLocked forgets the oldest so many, those of processes where there are enough: the end of
// a container must not go for the starts of a thousand commands.
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

// subscribe returns the events so far and a reader of those to come.
func (l *eventLog) subscribe() ([]Event, *subscriber) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := &subscriber{events: make(chan Event, eventsAhead)}
	l.subscribers[s] = struct{}{}
	var past []Event
	if l.dropped > 0 {
		past = append(past, Event{Time: l.recent[0].Time, Kind: EventsDropped, Count: l.dropped,
			Detail: fmt.Sprintf("%d events up to now are not kept", l.dropped)})
	}
	return append(past, l.recent...), s
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
	return Event{Time: time.Now(), Kind: EventsLost, Count: s.lost,
		Detail: fmt.Sprintf("reader too slow, %d events lost", s.lost)}, true
}
