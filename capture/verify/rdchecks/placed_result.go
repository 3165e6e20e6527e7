package rdchecks

import (
	"fmt"
	"slices"

	"railbed/capture/verify/evidence"
	"railbed/internal/plural"
	"railbed/plan/spec"
)

// Result implements Check.
func (k *placed) Result() evidence.Result {
	r := evidence.Result{Name: "that " + spec.ThatRDPlaced}
	incomplete, underWay, late := k.open()
	f := evidence.Finding{Unclear: k.doubts()}
	certain := len(f.Unclear) == 0 && late == 0
	absent := &f.Absent
	if !certain {
		absent = &f.Unclear
	}
	say := func(to *[]string, count uint64, what string) {
		if count > 0 {
			*to = append(*to, plural.Count(count, what))
		}
	}
	say(&f.Wrong, k.overlap, "packets carried bytes of a message that another packet carries")
	say(&f.Wrong, k.changed, "packets contradicted earlier packets about their PSN or message")
	say(&f.Wrong, k.beyond, "packets went beyond the end of the message")
	say(&f.Wrong, k.givenUp, "messages were refused and given up")
	say(absent, incomplete, "messages did not come whole")
	say(absent, k.never, "packets did not come within a window of their numbers")
	say(absent, k.tooSoon, "packets were acknowledged that had not come whole")
	say(absent, k.tooLarge, "acknowledgements counted more bytes than came, each packet once")
	say(&f.Unclear, underWay, "messages were under way at the end")
	say(&f.Unclear, late, "pairs of engines had begun before the capture")
	if k.messages == 0 {
		f.Unclear = append(f.Unclear, "no message left a node")
	}
	switch {
	case len(f.Wrong) > 0:
		f.Wrong = append(f.Wrong, k.examples...)
	case len(f.Absent) > 0:
		f.Absent = append(f.Absent, k.examples...)
	default:
		f.Unclear = append(f.Unclear, k.examples...)
	}
	placed := k.messages - incomplete - underWay - k.givenUp - k.canceled
	r.Measured = map[string]float64{
		"messages": float64(k.messages), "placed": float64(placed), "bytes": float64(k.bytes),
		"with-holes": float64(k.holed),
		"given-up":   float64(k.givenUp), "canceled": float64(k.canceled),
		"duplicates": float64(k.duplicates),
		"trimmed":    float64(k.trimmed + k.hints), "damaged": float64(k.damaged),
	}
	canceled := ""
	if k.canceled > 0 {
		canceled = fmt.Sprintf(", %d canceled", k.canceled)
	}
	r.Summary = plural.Text("%d of %d messages came whole, %d bytes, %d with holes%s; %d packets came "+
		"again, %d trimmed, %d damaged",
		placed, k.messages, k.bytes, k.holed, canceled, k.duplicates, k.trimmed+k.hints, k.damaged)
	k.capture.Conclude(&r, k.need(), f)
	return r
}

// open counts the messages that are not over. It counts separately those that may continue after
// the end of the capture, and pairs that began before it.
func (k *placed) open() (incomplete, underWay, late uint64) {
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
			k.exemplify("%s: of %d bytes of message %d only %d came", s.name, m.fields.Total, number, m.have)
		}
	}
	return incomplete, underWay, late
}
