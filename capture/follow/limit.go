package follow

import (
	"fmt"
	"reflect"
	"strings"

	"railbed/capture/pcapng"
	"railbed/internal/plural"
	"railbed/internal/units"
)

// MaxMemory is the default of Options.Memory. It is enough for two million datagrams that were recorded at
// one tap, or for four million segments of long messages that were recorded at both ends of their path. The
// process has up to three times as much, because slices are copied when they grow, and the copies are
// garbage.
const MaxMemory = 1 << 30

// Bytes that a recording and its follower take for each record, packet and message.
var (
	recordSize  = sizeOf[Sight]() + sizeOf[int32]() + sizeOf[pcapng.Origin]()
	packetSize  = sizeOf[Packet]() + 48  // with the map from ids, and the list of the message's packets
	messageSize = sizeOf[Message]() + 64 // with the smallest list of packets, and the stream's messages
)

func sizeOf[T any]() int64 { return int64(reflect.TypeFor[T]().Size()) }

// memory returns about how many bytes the recording takes, without the unused ends of slices.
func (r *Recording) memory() int64 {
	return int64(len(r.sights))*recordSize + int64(len(r.Packets))*packetSize +
		int64(len(r.Messages))*messageSize
}

// Lacks returns what the recording lacks, for people, as predicates of its name. Messages may seem unfinished
// for these reasons.
func (r *Recording) Lacks() (all []string) {
	if len(r.Missing) > 0 {
		all = append(all, "is not complete ("+strings.Join(r.Missing, "; ")+"): messages may seem unfinished")
	}
	if r.Lost > 0 {
		all = append(all, plural.Text("lost %d packets: messages may seem unfinished", r.Lost))
	}
	if r.Truncated {
		all = append(all, "is cut off: messages may seem unfinished")
	}
	if r.LeftOut > 0 {
		all = append(all, fmt.Sprintf("needs more than the %s of memory that railbed uses: all times and "+
			"causes are from its first %s, without %s after them; editcap -A and -B cut out another part",
			units.Bytes(r.most), units.Took(r.Own(r.End-r.Start)), plural.Count(r.LeftOut, "records")))
	}
	return all
}
