package display

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"railbed/capture/pcapng"
	"railbed/testkit/hosttest"
)

// linked are packets with the insides of tunnels, or with a SEND of InfiniBand, by the link type.
func linked() map[uint16][][]byte {
	four, six := insides()
	eth := framed(0x0800, four)
	eth[5] = 9
	cat := func(parts ...[]byte) []byte { return slices.Concat(parts...) }
	erf := func(kind byte, extensions int, length int, body ...[]byte) []byte {
		b := make([]byte, 16+8*extensions)
		b[8] = kind
		for i := range extensions {
			b[8+8*i*min(i, 1)] |= 0x80
			if i > 0 {
				b[16+8*(i-1)] |= 0x80
			}
		}
		b[14], b[15] = byte(length>>8), byte(length)
		all := cat(body...)
		size := len(b) + len(all)
		b[10], b[11] = byte(size>>8), byte(size)
		return append(b, all...)
	}
	send := []byte{0x04, 0, 0xFF, 0xFF, 0, 0, 0, 0x12, 0x80, 0, 0, 7} // SEND Only
	bth := append(send, 1, 2, 3, 4, 0, 0, 0, 0)                       // and ICRC
	local := func(next byte, parts ...[]byte) []byte {
		all := cat(parts...)
		words := (8 + len(all)) / 4
		return cat([]byte{0, next, 0, 2, 0, byte(words), 0, 1}, all, []byte{0, 0})
	}
	global := append([]byte{0x60, 0, 0, 0, 0, byte(len(bth)), 0x1B, 9}, make([]byte, 32)...)
	cooked := func(kind uint16) []byte {
		return []byte{0, 0, 0, 1, 0, 6, 2, 0, 0, 0, 0, 9, 0, 0, byte(kind >> 8), byte(kind)}
	}
	cooked2 := func(kind uint16) []byte {
		return []byte{byte(kind >> 8), byte(kind), 0, 0, 0, 0, 0, 3, 0, 1, 0, 6, 2, 0, 0, 0, 0, 9, 0, 0}
	}
	tag := []byte{0, 7, 8, 0}
	return map[uint16][][]byte{
		linkRaw: {four, six}, linkIPv4: {four}, linkIPv6: {six},
		linkNull: {cat([]byte{2, 0, 0, 0}, four), cat([]byte{0, 0, 0, 2}, four),
			cat([]byte{30, 0, 0, 0}, six),
			cat([]byte{24, 0, 0, 0}, six), cat([]byte{28, 0, 0, 0}, six), cat([]byte{7, 0, 0, 0}, four)},
		linkLoop:    {cat([]byte{0, 0, 0, 2}, four), cat([]byte{0, 0, 0, 24}, six)},
		linkCooked:  {cat(cooked(0x0800), four), cat(cooked(0x86DD), six), cat(cooked(0x8100), tag, four)},
		linkCooked2: {cat(cooked2(0x0800), four), cat(cooked2(0x86DD), six), cat(cooked2(0x8100), tag, four)},
		linkERF: {erf(2, 0, len(eth), []byte{0, 0}, eth), erf(2, 1, len(eth), []byte{0, 0}, eth),
			erf(2, 2, len(eth), []byte{0, 0}, eth), erf(21, 0, len(local(2, bth)), local(2, bth)),
			erf(21, 0, len(local(3, global, bth)), local(3, global, bth)),
			erf(22, 0, len(four), four), erf(23, 0, len(six), six)},
		linkInfiniband: {local(2, bth), local(3, global, bth)},
	}
}

// linkFields are fields of the headers in packets of all link types.
var linkFields = []string{"udp.dstport", "ip.src", "ipv6.src", "eth.src", "vlan.id", "infiniband.bth.psn",
	"infiniband.bth.opcode"}

// TestLinkTypesAsWireshark compares fields with tshark's, in files of each link type.
func TestLinkTypesAsWireshark(t *testing.T) {
	hosttest.Need(t, hosttest.Tshark)
	name := filepath.Join(t.TempDir(), "link.pcap")
	args := []string{"-r", name, "-T", "fields"}
	for _, field := range linkFields {
		args = append(args, "-e", field)
	}
	for kind, packets := range linked() {
		if kind == linkInfiniband {
			continue // tshark 4.0 reads InfiniBand in ERF alone
		}
		// A file of pcap with nanoseconds (draft-ietf-opsawg-pcap): gopacket's link types have eight bits.
		file := slices.Concat([]byte{0x4D, 0x3C, 0xB2, 0xA1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0},
			[]byte{byte(kind), byte(kind >> 8), 0, 0})
		for _, data := range packets {
			size := []byte{byte(len(data)), 0, 0, 0}
			file = slices.Concat(file, make([]byte, 8), size, size, data)
		}
		if err := os.WriteFile(name, file, 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), "tshark", args...)
		var complaint strings.Builder
		cmd.Stderr = &complaint
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("link type %d: %v: %s", kind, err, complaint.String())
		}
		want := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
		found := 0
		each(t, name, func(p *Packet) {
			var got []string
			for _, field := range linkFields {
				got = append(got, strings.Join(FieldNamed(field).Texts(p), ","))
			}
			if line := strings.Join(got, "\t"); line != want[p.Number-1] {
				t.Errorf("link type %d, packet %d: %q, want %q", kind, p.Number, line, want[p.Number-1])
			} else if strings.Trim(line, "\t") != "" {
				found++
			}
			if p.Summary().Protocol == "" {
				t.Errorf("link type %d, packet %d: the line of decode is blank", kind, p.Number)
			}
		})
		if found == 0 {
			t.Errorf("link type %d: no packet has a field", kind)
		}
	}
}

// TestInfiniBandLinks: packets of InfiniBand without a record of ERF around them are read alike.
func TestInfiniBandLinks(t *testing.T) {
	for i, data := range linked()[linkInfiniband] {
		p := &Packet{}
		p.Set(&pcapng.Packet{Data: data, Length: len(data)}, &pcapng.Interface{LinkType: linkInfiniband}, 1,
			0)
		if match, unseen := compiled(t, "infiniband.bth.psn == 7").Judge(p); !match || unseen != 0 {
			t.Errorf("packet %d: found %t, unseen %b", i, match, unseen)
		}
	}
}

// TestUnknownLinkType: the line of a packet of an unknown link type names the type.
func TestUnknownLinkType(t *testing.T) {
	p := &Packet{}
	p.Set(&pcapng.Packet{Data: make([]byte, 60), Length: 60}, &pcapng.Interface{LinkType: 105}, 1, 0)
	if got := p.Summary().Protocol; got != "link type 105" {
		t.Errorf("protocol %q, want the link type", got)
	}
}

// TestTagsInLines: the line of a packet has the numbers of its VLANs.
func TestTagsInLines(t *testing.T) {
	four, _ := insides()
	p := shown(framed(0x88A8, []byte{0, 9, 0x81, 0}, []byte{0x20, 7, 8, 0}, four))
	if got := p.Summary().Info; got != "vlan 9 vlan 7 length 6" {
		t.Errorf("info %q, want both VLANs", got)
	}
}
