package evidence

import (
	"testing"

	"railbed/capture/pcapng"
)

// TestRepeatedRecords: a record that occurs twice is read once, in recordings of others too where
// its packet has an id. mergecap of a recording with itself makes such a file, and replaces the
// application's name.
func TestRepeatedRecords(t *testing.T) {
	for _, c := range []struct {
		name  string
		exact bool
		has   pcapng.Fields
		want  int
	}{
		{"ours", true, 0, 1}, {"others', with ids", false, pcapng.HasID, 1}, {"others'", false, 0, 2},
	} {
		w := &window{exact: c.exact, most: windowLeast}
		for range 2 {
			w.add(&pcapng.Packet{Time: 5, ID: 7, Has: c.has, Data: []byte{1, 2, 3}, Length: 3})
		}
		if got := w.len(); got != c.want {
			t.Errorf("%s: %d records, want %d", c.name, got, c.want)
		}
	}
}
