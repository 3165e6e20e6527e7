package occupancy

import "testing"

// TestBothSides: what one mapping writes another reads, each NIC and priority by
// itself.
func TestBothSides(t *testing.T) {
	const nics = 700 // more than a page
	file, err := Create(nics)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	writer, err := MapWritable(file)
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	reader, err := Map(file)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if reader.NICs() < nics {
		t.Fatalf("room for %d NICs, want %d", reader.NICs(), nics)
	}
	for nic := range nics {
		for q := range uint8(Priorities) {
			writer.Set(nic, q, uint32(nic*100+int(q)+1))
		}
	}
	for nic := range nics {
		for q := range uint8(Priorities) {
			if got, want := reader.Bytes(nic, q), uint32(nic*100+int(q)+1); got != want {
				t.Fatalf("NIC %d priority %d: %d bytes, want %d", nic, q, got, want)
			}
		}
	}
}
