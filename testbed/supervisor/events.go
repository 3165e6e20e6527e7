package supervisor

import (
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

// eventLog keeps the latest events and hands new ones to subscribers. It is
// safe for concurrent use.
type eventLog struct {
	mu          sync.Mutex
	recent      []Event
	subscribers map[chan Event]struct{}
}

func newEventLog() *eventLog {
	return &eventLog{subscribers: make(map[chan Event]struct{})}
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
	for subscriber := range l.subscribers {
		select {
		case subscriber <- event:
		default:
			delete(l.subscribers, subscriber)
			close(subscriber)
		}
	}
}

// subscribe returns the events so far and a channel of those to come, which is
// closed when the subscriber falls too far behind.
func (l *eventLog) subscribe() ([]Event, chan Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	subscriber := make(chan Event, eventsAhead)
	l.subscribers[subscriber] = struct{}{}
	return append([]Event(nil), l.recent...), subscriber
}

func (l *eventLog) unsubscribe(subscriber chan Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.subscribers, subscriber)
}
