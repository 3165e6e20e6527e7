package verify

import (
	"fmt"
	"slices"

	"railbed/testbed/spec"
)

// Result implements Check.
func (k *Placed) Result() Result {
	r := Result{Name: "that " + spec.ThatRDPlaced}
	taps := k.nicTaps()
	incomplete, underWay, late := k.open()
	unclear := k.doubts()
	certain := len(unclear) == 0 && late == 0 && !k.capture.lossy(taps)
	var wrong, absent []string
	say := func(to *[]string, count uint64, what string) {
		if count > 0 {
			*to = append(*to, fmt.Sprintf("%d %s", count, what))
		}
	}
	say(&wrong, k.overlap, "packets carry bytes of a message that another packet carries")
	say(&wrong, k.changed, "packets carry something else than was said of their number or message before")
	say(&wrong, k.beyond, "packets go beyond the end of their message")
	say(&wrong, k.givenUp, "messages were refused and given up")
	say(&absent, incomplete, "messages did not come whole")
	say(&absent, k.never, "packets did not come within a window of their numbers")
	say(&absent, k.tooSoon, "packets were acknowledged that had not come whole")
	say(&absent, k.tooLarge, "acknowledgements count more bytes than came, each packet once")
	if certain {
		wrong = append(wrong, absent...)
	} else {
		unclear = append(unclear, absent...)
	}
	say(&unclear, underWay, "messages were under way at the end")
	say(&unclear, late, "pairs of engines had begun before the capture")
	if k.messages == 0 {
		unclear = append(unclear, "no message left a node")
	}
	if len(wrong) > 0 {
		wrong = append(wrong, k.examples...)
	} else {
		unclear = append(unclear, k.examples...)
	}
	placed := k.messages - incomplete - underWay - k.givenUp - k.canceled
	r.Measured = map[string]float64{
		"messages": float64(k.messages), "placed": float64(placed), "bytes": float64(k.bytes), "with-holes": float64(k.holed),
		"given-up": float64(k.givenUp), "canceled": float64(k.canceled), "duplicates": float64(k.duplicates), "trimmed": float64(k.trimmed + k.hints), "damaged": float64(k.damaged),
	}
	canceled := ""
	if k.canceled > 0 {
		canceled = fmt.Sprintf(", %d canceled", k.canceled)
	}
	r.Summary = fmt.Sprintf("%d of %d messages came whole, %d bytes, %d with holes%s; %d packets came again, %d trimmed, %d damaged",
		placed, k.messages, k.bytes, k.holed, canceled, k.duplicates, k.trimmed+k.hints, k.damaged)
	k.capture.conclude(&r, taps, wrong, unclear)
	return r
}

// open counts the messages that are not over, those apart that may go on behind the
// end of the capture, and the pairs that began before it.
func (k *Placed) open() (incomplete, underWay, late uint64) {
	for _, s := range k.pairs {
		if s.late {
			late++
		}
		numbers := make([]uint32, 0, len(s.messages))
		for number := range s.messages {
			numbers = append(numbers, number)
		}
		slices.Sort(numbers)
		for _, number := range numbers {
			m := s.messages[number]
			if k.capture.End-m.latest < k.linger {
				underWay++
				continue
			}
			incomplete++
			k.exemplify("%s: of %d bytes of message %d came %d", s.name, m.fields.Total, number, m.have)
		}
	}
	return incomplete, underWay, late
}
