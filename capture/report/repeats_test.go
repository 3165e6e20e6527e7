package report

import "testing"

func TestNoteOfRepeats(t *testing.T) {
	for _, test := range []struct {
		repeats Repeats
		want    string
	}{
		{Repeats{}, ""},
		{Repeats{Payload: 1000, Bytes: 100, Loss: 1}, ""}, // 10 % is the limit
		{Repeats{Payload: 1000, Bytes: 101, Loss: 1}, "rd sent 10% of the payload again: 1 packet lost"},
		{Repeats{Payload: 1000, Bytes: 950, Loss: 1, Trimming: 30, Timer: 2, Order: 4, Refused: 3},
			"rd sent 95% of the payload again: 30 packets trimmed by a full switch, 4 packets late or " +
				"reordered, but not lost, 3 packets refused by a receiver without room, 2 packets missing " +
				"when the sender's timer ran out, 1 packet lost"},
	} {
		if got := test.repeats.Note(); got != test.want {
			t.Errorf("%+v: %q, want %q", test.repeats, got, test.want)
		}
	}
}
